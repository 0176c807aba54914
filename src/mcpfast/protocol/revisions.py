"""What each revision of MCP has, as data. Ask the record; never compare dates in the middle of logic.

Source: MCP, the basic/transports and basic/lifecycle pages of each revision, and basic/versioning of 2026-07-28.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = [
    "HTTP_SSE",
    "LATEST",
    "LATEST_LEGACY",
    "LEGACY",
    "MODERN",
    "REVISIONS",
    "Revision",
    "negotiate",
]


@dataclass(frozen=True, slots=True)
class Revision:
    """One protocol revision.

    Attributes:
        version: its name on the wire, a date.
        has_sessions: ``initialize`` opens a session; without, each request is complete in itself.
        accepts_batches: JSON arrays of messages must be taken.
        is_streamable: it is spoken over one Streamable HTTP endpoint (2024-11-05: HTTP+SSE only).
        has_get_stream: a standing GET stream carries what belongs to no request.
        can_resume: a broken stream may be taken up again with ``Last-Event-ID``.
        primes_streams: a stream begins with an empty event that has an id, and may be closed before its
            answer for the client to poll.
        has_version_header: ``MCP-Protocol-Version`` is sent after ``initialize``.
        has_standard_headers: ``Mcp-Method`` and ``Mcp-Name`` mirror the body.
        disconnect_cancels: a client that leaves a response stream has cancelled the request.
        allows_server_requests: the server may send requests to the client.
    """

    version: str
    has_sessions: bool
    accepts_batches: bool = False
    is_streamable: bool = True
    has_get_stream: bool = True
    can_resume: bool = True
    primes_streams: bool = False
    has_version_header: bool = True
    has_standard_headers: bool = False
    disconnect_cancels: bool = False
    allows_server_requests: bool = True


_ALL: Final = (
    Revision(
        "2024-11-05",
        has_sessions=True,
        is_streamable=False,
        has_get_stream=False,
        can_resume=False,
        has_version_header=False,
        disconnect_cancels=True,
    ),
    Revision("2025-03-26", has_sessions=True, accepts_batches=True, has_version_header=False),
    Revision("2025-06-18", has_sessions=True),
    Revision("2025-11-25", has_sessions=True, primes_streams=True),
    Revision(
        "2026-07-28",
        has_sessions=False,
        has_get_stream=False,
        can_resume=False,
        has_standard_headers=True,
        disconnect_cancels=True,
        allows_server_requests=False,
    ),
)

REVISIONS: Final = {revision.version: revision for revision in _ALL}
"""Every revision, oldest first, by its name."""

HTTP_SSE: Final = REVISIONS["2024-11-05"]
"""The revision whose transport HTTP+SSE is."""

LEGACY: Final = tuple(revision.version for revision in _ALL if revision.has_sessions)
"""The revisions that begin with ``initialize``, oldest first."""

MODERN: Final = tuple(revision.version for revision in _ALL if not revision.has_sessions)
"""The revisions in which each request is complete in itself, oldest first."""

LATEST_LEGACY: Final = LEGACY[-1]
LATEST: Final = _ALL[-1].version


def negotiate(asked: object) -> Revision:
    """Return the revision to answer an ``initialize`` with: the one asked for, else the latest that has sessions.

    Source: MCP 2025-11-25, basic/lifecycle §Version Negotiation (L25-S-23). HTTP+SSE carries the messages of any
    of these revisions, as clients and servers in the field do.
    """
    revision = REVISIONS.get(asked) if isinstance(asked, str) else None
    return revision if revision is not None and revision.has_sessions else REVISIONS[LATEST_LEGACY]
