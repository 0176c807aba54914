"""The server side of MCP: an application's methods, and a handler for each transport that carries them.

The boxes::

    shell (native, ASGI)          one Request and Responder per HTTP request; sockets, framing, HTTP's limits
      └─ App                      Origin and Host, then the path: which transport
           ├─ StreamableHTTPHandler      every revision of Streamable HTTP, by era
           │    ├─ ModernExchange        2026-07-28: one request, in the shell's task for it
           │    └─ StreamableSession     2025: what runs for a client
           │         └─ SessionStreams   its streams, over any number of connections; the event store
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

On Streamable HTTP a request's stream is not its connection. A session's stream may lose its connection and be taken up
again by another one; what is said meanwhile is stored (``event_store``), or, for the standing GET stream, held
(``max_backlog_messages``), or lost. A client that leaves has cancelled nothing there, while on 2026-07-28 it has: each
request runs in the task that the shell cancels. Such a session ends by DELETE, when it is idle, or with the server.

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
``streamable``         StreamableHTTPHandler: Streamable HTTP at one URL, every revision
``modern_requests``    2026-07-28: from a POST's body to a handler, a listen stream or a refusal
``modern_exchange``    one request of 2026-07-28 being served
``subscriptions``      the open subscriptions/listen streams of a Server
``session_table``      the sessions of a handler: their beginning, ownership and end
``streamable_session`` a session: what it is asked, and what runs for it
``session_streams``    what a session sends: connections, replays, the store
``answer``             the answer to a POST: JSON, or a stream once something is said
``finder``             which Server a request is for
``stream``             one event stream: coalescing, back-pressure
``audience``           who hears what a Server publishes
``broadcast``          one message to many streams; slow readers
``keepalive``          comments on quiet streams
``running``            tasks of sessions: how work starts, and how it is stopped
``patience``           how long an answer may take before its stream begins
``pending``            requests to a client that are not answered yet
``gate``               Origin and Host, authentication, refusals
``cors``               letting pages of other origins read the answers
``resource_metadata``  who issues tokens for a server
``hosting``            lifespans of the Servers an app serves
``shared``, ``load``   what all transports of an app share, and all apps of a process
``stats``              what is counted
``options``            every option, its default and unit
``app``                paths; the ASGI application
``listener``           serve() and run()
``workers``            several processes on one port
=====================  ======================================================================
"""

from ..protocol.bearer import bearer_token
from ..protocol.event_store import EventStore, MemoryEventStore, StoredEvent
from .application import Server
from .context import Context
from .listener import run, serve
from .principal import Principal
from .resource_metadata import ResourceMetadata
from .sse_handler import SSEHandler
from .sse_transport import SSEServerTransport
from .streamable import StreamableHTTPHandler

__all__ = [
    "Context",
    "EventStore",
    "MemoryEventStore",
    "Principal",
    "ResourceMetadata",
    "SSEHandler",
    "SSEServerTransport",
    "Server",
    "StoredEvent",
    "StreamableHTTPHandler",
    "bearer_token",
    "run",
    "serve",
]
