"""Clients: transports, calls, and ``connect()``.

::

    connect() ──> Client ──> Session ─┐                         ┌─> POSTs
                (the face)  (calls)   ├─> Channel ──> Sender ──>┤          ──> Backend (http/)
    transport.connect() ──> Message-  │  (one per   (headers,   └─> GET stream
                            Connection┘   transport) auth, redirects)

*Who owns which buffer.* The backend's connection owns raw bytes, at most one chunk of the socket. The
channel's decoder owns the unfinished event (``max_event_bytes``). A raw connection's inbox owns whole
messages that wait for ``recv``: 100, then the channel stops reading and the server feels it. A session
owns no messages: an answer settles its call in the callback that read it; notifications wait only behind
an async handler (1,000, see ``handlers``).

*What ends a stream.* The server's end of it, a lost connection, an event that is too large, silence after
a ping, or our close. Each ends the channel, which tells its receiver once, with the cause; all that waits
then fails with ``TransportClosed`` from that cause. HTTP+SSE resumes nothing: the end of the stream is the
end of the session. Over Streamable HTTP each request has its own answer, which fails or is resumed by itself
(``resumable``), and a session's standing stream comes back; only our close ends the channel.

*Tasks.* One per connection, asleep until the end (``keeper``); one per request of the server while it is
worked on; one while an async handler is behind; one per request with an async ``header_func`` or ``auth``.
None per call and none per event.

=================  ==========================================================================
``auth``           drives Auth objects of httpx and httpx2 around a request
``channel``        what a transport and the user of it owe each other
``detection``      which transport and revision a server speaks
``client``         Client: request, notify, handlers
``connecting``     connect(): from an address to an initialized client
``connection``     raw messages through a bounded queue
``handlers``       runs the handlers of notifications, in order
``keeper``         the one task of a connection, which sees to its end
``listen``         client.listen(): subscriptions of 2026-07-28
``modern_calls``   what calls of 2026-07-28 have beyond the rest: tool headers, result types
``posting``        one message as a POST: accepted or refused, within its time
``restarting``     a new session where the server has ended the present one
``sender``         requests with the user's headers and auth; redirects; what a refusal means
``session``        calls over a channel: ids, answers, cancellation, the server's requests
``sse``            HTTP+SSE (2024-11-05)
``streamable``     Streamable HTTP (2025-03-26 to 2026-07-28): the transport and its options;
                   ``streamable_channel`` is one connection, ``exchange`` one POST with a
                   request, ``resumable`` an event stream over as many connections as it
                   takes, ``listening`` the standing GET stream of a session
=================  ==========================================================================
"""

from ..protocol.reconnection import RetryPolicy
from .client import Client
from .connecting import connect
from .sse import SSEClientTransport
from .streamable import StreamableHTTPClientTransport

__all__ = ["Client", "RetryPolicy", "SSEClientTransport", "StreamableHTTPClientTransport", "connect"]
