"""What an HTTP shell of ours takes from its peers, and for how long it waits for them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MIN_BODY_BYTES_PER_S", "HTTPLimits"]

# A body that comes slower is as good as stalled: a byte now and then would hold a connection for days.
MIN_BODY_BYTES_PER_S = 50


@dataclass(frozen=True, slots=True)
class HTTPLimits:
    """Limits of a server, all on by default. Sizes are in bytes, times in seconds."""

    max_body_bytes: int = 4 << 20
    """Size of a request's body, chunk framing not counted; over it: 413."""
    max_head_bytes: int = 64 << 10
    """Size of a request's head as it came; over it: 431, or 414 if the request line alone is over it."""
    max_head_fields: int = 100
    """Header fields in a request's head; over it: 431."""
    head_timeout_s: float = 10.0
    """From the first byte of a request's head to its last, and from connecting to the first request; then 408."""
    body_timeout_s: float = 20.0
    """A body must progress: each such period brings the rest of it or 50 bytes per second, else 408."""
    idle_timeout_s: float = 75.0
    """How long a kept-alive connection may be quiet between requests; then it is closed."""
    max_unsent_bytes: int = 1 << 20
    """How far a reader may be behind before ``Responder.drain`` waits for it."""
    slow_reader_timeout_s: float = 30.0
    """A reader that is this far behind for so long, the message being written apart, or that takes nothing
    for so long, is dropped."""
    max_connections: int = 20_000
    """Connections open at once; more are closed as they come."""
    pipelined_bytes: int = 64 << 10
    """Input read ahead of the request being answered; above it the socket is not read."""
    tcp_user_timeout_s: float = 30.0
    """A peer that acknowledges nothing for so long is dead (TCP_USER_TIMEOUT, and TCP keepalive probes)."""
