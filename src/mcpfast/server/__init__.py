"""The server side of MCP: an application's methods, and a handler for each transport that carries them.

The boxes::

    shell (native, ASGI)          one Request and Responder per HTTP request; sockets, framing, HTTP's limits
      └─ App                      Origin and Host, then the path: which transport
           └─ SSEHandler          the table of sessions; who may open one, and whose it is
                └─ session        one client: what runs for it, what it was asked, its one stream
                     ├─ machine   (protocol/) what a message may do now: accepted, later, refused
                     ├─ Server    (the application) the answer to one message; knows no transport
                     └─ EventStream ─ Responder

A message takes the short way: the POST's body is decoded, judged by the session's machine, answered with 202, and
handed to the Server in the same turn of the loop. A request that has a handler gets one task; ``ping``, ``initialize``,
answers, cancellations and everything refused get none. An idle stream has no task and no timer of its own: one ticker
per app writes the keep-alive comments, and what is published is kept once for all streams (``broadcast``).

Who owns which buffer, and its bound:

- a body: the shell, until it is whole (``max_body_bytes``);
- messages that wait for a reader of raw messages: its SSEConnection (``max_queued_messages``; as many POSTs more wait
  outside, for ``queue_timeout_s``). A Server needs no such queue, but its work is bounded (``max_in_flight``);
- events of this turn of the loop: the EventStream (64 KiB, then they go out at once);
- bytes the client has not taken: the shell. Above ``max_unsent_bytes`` whoever has an answer or a notification to send
  waits; a reader that stays behind is dropped by the shell;
- published messages a slow reader is owed: the Broadcast, once for all (``max_backlog_messages``); beyond it the reader
  is dropped with the reason ``slow_reader``.

What ends a stream of HTTP+SSE, and with it its session: the client leaves; the shell drops a dead or slow one; the
application closes the connection or its function returns; the server stops (idle ones at once, others when what they
run has ended, at the latest after ``shutdown_grace_s``). Then, in one turn of the loop: the session leaves the table,
so that its next POST is 404; its handlers are cancelled and their answers dropped; its own requests to the client fail
with TransportClosed; POSTs that wait are answered. Nothing of it can be taken up again.

=====================  ======================================================================
``application``        Server: methods, capabilities, what is built in, errors
``context``            Context, what a handler is given; Peer, what is known of a client
``principal``          Principal, who is behind a request; ownership of sessions
``threads``            threads for handlers that are plain functions
``sse_handler``        SSEHandler: HTTP+SSE at one URL, and the table of its sessions
``sse_session``        a session served by a Server
``sse_transport``      SSEServerTransport: a session as a Connection of raw messages
``sse_post``           from a POST's body to a session
``stream``             one event stream: coalescing, back-pressure
``broadcast``          one message to many streams; slow readers
``keepalive``          comments on quiet streams
``pending``            requests to a client that are not answered yet
``gate``               Origin and Host, authentication, refusals
``hosting``            lifespans of the Servers an app serves
``shared``, ``load``   what all transports of an app share, and all apps of a process
``stats``              what is counted
``options``            every option, its default and unit
``app``                paths; the ASGI application
``listener``           serve() and run()
``workers``            several processes on one port
=====================  ======================================================================
"""

from .application import Server
from .context import Context
from .listener import run, serve
from .principal import Principal
from .sse_handler import SSEHandler
from .sse_transport import SSEServerTransport

__all__ = ["Context", "Principal", "SSEHandler", "SSEServerTransport", "Server", "run", "serve"]
