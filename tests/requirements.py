"""What each revision of MCP asks of an HTTP transport, and by which test it is held.

One line is one requirement of the specification, restated as an id. A test that holds it names the id; a test of this
list (``tests/test_requirements.py``) fails where none does, and where a test names an id that is not here.

Ids: ``M26`` is 2026-07-28, ``L25`` 2025-11-25, ``L06`` 2025-06-18, ``L03`` 2025-03-26, ``H24`` 2024-11-05; ``S`` is the
server's side, ``C`` the client's, ``B`` both. Sources name the page and section. Pages of 2026-07-28: *http* is
basic/transports/streamable-http, *transports* basic/transports/index, *basic* basic/index, *auth*
basic/authorization/index; *versioning*, *cancellation*, *subscriptions*, *mrtr*, *progress* and *discover* are pages of
basic/… and server/…. Of older revisions a section alone stands for basic/transports.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NOT_APPLICABLE", "REQUIREMENTS", "Requirement"]

_REVISIONS = {
    "M26": "2026-07-28",
    "L25": "2025-11-25",
    "L06": "2025-06-18",
    "L03": "2025-03-26",
    "H24": "2024-11-05",
}


@dataclass(frozen=True)
class Requirement:
    """One requirement.

    Attributes:
        id: its name in tests.
        strength: the specification's word; ``der``: it follows from a rule for the other side, or from HTTP.
        source: page and section.
        is_sem: the layer above the transport fulfils it; the transport must only not break it, no test is asked for.
    """

    id: str
    strength: str
    source: str
    is_sem: bool = False

    @property
    def revision(self) -> str:
        return _REVISIONS[self.id[:3]]


def _r(id: str, strength: str, source: str, *, is_sem: bool = False) -> Requirement:
    return Requirement(id, strength, source, is_sem)


_ALL = (
    _r("M26-S-01", "MUST", "http, opening"),
    _r("M26-S-02", "MUST", "http §Security & Endpoint 1"),
    _r("M26-S-03", "MUST", "http §Security & Endpoint 1"),
    _r("M26-S-04", "SHOULD", "http §Security & Endpoint 2"),
    _r("M26-S-05", "SHOULD", "http §Security & Endpoint 3"),
    _r("M26-S-06", "der", "http §Sending Messages 4; basic §Error Codes"),
    _r("M26-S-07", "MUST", "http §Sending Messages 5"),
    _r("M26-S-08", "MUST", "http §Sending Messages 5"),
    _r("M26-S-09", "MUST", "transports §Messages"),
    _r("M26-S-10", "der", "basic §Requests"),
    _r("M26-S-11", "MUST", "http §Sending Messages 6"),
    _r("M26-S-12", "MUST", "basic §Error Responses, §Result Responses"),
    _r("M26-S-13", "MUST", "http §Receiving Messages"),
    _r("M26-S-14", "MUST NOT", "http §Receiving Messages"),
    _r("M26-S-15", "SHOULD", "http §Receiving Messages"),
    _r("M26-S-16", "SHOULD", "http §Receiving Messages"),
    _r("M26-S-17", "encouraged", "http §Receiving Messages, note"),
    _r("M26-S-18", "stated", "http §Receiving Messages, end"),
    _r("M26-S-19", "MUST NOT", "server/utilities/logging §Per-request log level; http §Receiving Messages"),
    _r("M26-S-20", "MUST NOT", "server/utilities/logging §Per-request log level", is_sem=True),
    _r("M26-S-21", "MUST", "progress §Progress Flow, §Behavior Requirements, §Implementation Notes", is_sem=True),
    _r("M26-S-22", "MUST", "http §Cancellation; cancellation §Transport-Specific Cancellation"),
    _r("M26-S-23", "MUST", "cancellation §Transport-Specific Cancellation"),
    _r("M26-S-24", "SHOULD", "http §Cancellation; cancellation §Behavior Requirements"),
    _r("M26-S-25", "MUST NOT", "http §Cancellation"),
    _r("M26-S-26", "MUST", "cancellation §Timing Considerations"),
    _r("M26-S-27", "MUST NOT", "cancellation, opening"),
    _r("M26-S-28", "MUST", "http §Protocol Version Header"),
    _r("M26-S-29", "MUST", "http §Protocol Version Header; versioning §Protocol Version Negotiation"),
    _r("M26-S-30", "MAY", "http §Protocol Version Header"),
    _r("M26-S-31", "MUST", "http §Protocol Version Header"),
    _r("M26-S-32", "MUST", "http §Standard Request Headers, §Server Validation"),
    _r("M26-S-33", "MUST", "http §Standard Request Headers, §Server Validation"),
    _r("M26-S-34", "MUST", "http §Value Encoding, §Server Validation"),
    _r("M26-S-35", "MUST", "http §Server Validation, §Server Behavior for Custom Headers"),
    _r("M26-S-36", "MUST", "http §Case Sensitivity"),
    _r("M26-S-37", "der", "RFC 9110 §5.5; the conformance suite checks it"),
    _r("M26-S-38", "MUST", "http §Server Behavior for Custom Headers"),
    _r("M26-S-39", "MUST NOT", "http §Server Behavior for Custom Headers, table"),
    _r("M26-S-40", "SHOULD", "http §Server Validation, note"),
    _r("M26-S-41", "MUST", "http §Server Validation"),
    _r("M26-S-42", "der", "http §Server Validation, purpose"),
    _r("M26-S-43", "MUST", "basic §`_meta`"),
    _r("M26-S-44", "MUST", "basic §`_meta`"),
    _r("M26-S-45", "MUST", "http §Protocol Version Header"),
    _r("M26-S-46", "MUST NOT", "basic §Error Codes"),
    _r("M26-S-47", "SHOULD NOT", "basic §Error Codes"),
    _r("M26-S-48", "MUST", "basic §Result Responses, §`_meta`", is_sem=True),
    _r("M26-S-49", "MUST NOT", "basic §Statelessness"),
    _r("M26-S-50", "SHOULD NOT", "basic §Statelessness"),
    _r("M26-S-51", "MUST", "discover, opening; versioning §Protocol Version Negotiation"),
    _r("M26-S-52", "MUST", "mrtr, opening note, §Supported Requests", is_sem=True),
    _r("M26-S-53", "MUST", "mrtr §Server Requirements 4", is_sem=True),
    _r("M26-S-54", "MUST", "subscriptions §Acknowledgment"),
    _r("M26-S-55", "MUST NOT", "subscriptions §Opening a Stream"),
    _r("M26-S-56", "MUST", "basic §`_meta`; subscriptions §Receiving Notifications"),
    _r("M26-S-57", "der", "subscriptions, opening"),
    _r("M26-S-58", "SHOULD", "subscriptions §Cancellation, §Graceful Closure"),
    _r("M26-S-59", "open point", "cancellation, opening"),
    _r("M26-S-60", "allowed", "subscriptions §Multiple Concurrent Subscriptions"),
    _r("M26-S-61", "SHOULD", "http §Earlier Streamable HTTP Revisions"),
    _r("M26-S-62", "SHOULD", "versioning §Backward Compatibility"),
    _r("M26-S-63", "MAY", "versioning §Compatibility Matrix, end"),
    _r(
        "M26-S-64",
        "MUST",
        "auth §Token Handling; "
        "basic/authorization/authorization-server-discovery §Protected Resource Metadata Discovery Requirements",
    ),
    _r("M26-S-65", "MUST", "auth §Token Handling"),
    _r("M26-S-66", "SHOULD", "auth §Runtime Insufficient Scope Errors, §Scope Selection Strategy"),
    _r("M26-S-67", "MUST", "auth §Token Requirements"),
    _r("M26-C-01", "MUST", "http §Sending Messages 1"),
    _r("M26-C-02", "MUST", "http §Sending Messages 2"),
    _r("M26-C-03", "MUST", "http §Sending Messages 3, §Protocol Version Header"),
    _r("M26-C-04", "MUST", "http §Standard Request Headers"),
    _r("M26-C-05", "MUST", "http §Sending Messages 4"),
    _r("M26-C-06", "MUST", "http §Sending Messages 6"),
    _r("M26-C-07", "MUST", "http §Receiving Messages, note"),
    _r("M26-C-08", "der", "http, opening; §Earlier Streamable HTTP Revisions"),
    _r("M26-C-09", "MUST", "http §Sending Messages, note; cancellation §Transport-Specific Cancellation"),
    _r("M26-C-10", "SHOULD", "cancellation §Timeouts"),
    _r("M26-C-11", "SHOULD", "cancellation §Behavior Requirements"),
    _r("M26-C-12", "MUST", "basic §Requests"),
    _r("M26-C-13", "MUST", "basic §`_meta`"),
    _r("M26-C-14", "SHOULD", "versioning §Protocol Version Negotiation"),
    _r("M26-C-15", "MUST", "http §Value Encoding"),
    _r("M26-C-16", "MUST", "http §Value Encoding"),
    _r("M26-C-17", "MUST", "http §Custom Headers, §Client Behavior"),
    _r("M26-C-18", "MUST", "http §Schema Extension"),
    _r("M26-C-19", "SHOULD", "http §Client Behavior"),
    _r("M26-C-20", "MUST", "basic §ResultType", is_sem=True),
    _r("M26-C-21", "SHOULD", "subscriptions §Acknowledgment", is_sem=True),
    _r("M26-C-22", "MAY", "subscriptions §Graceful Closure"),
    _r("M26-C-23", "MUST", "mrtr §Client Requirements", is_sem=True),
    _r("M26-C-24", "SHOULD", "http §Backward Compatibility"),
    _r("M26-C-25", "der", "http §Backward Compatibility, §HTTP+SSE Transport"),
    _r("M26-C-26", "SHOULD", "versioning §Backward Compatibility"),
    _r("M26-C-27", "MUST", "auth §Token Requirements, §Token Handling"),
    _r("M26-C-28", "MUST", "auth §Overview 4"),
    _r("L25-S-01", "MUST", "basic/transports §Streamable HTTP"),
    _r("L25-S-02", "MUST", "§Security Warning 1"),
    _r("L25-S-03", "SHOULD", "§Security Warning 2, 3"),
    _r("L25-S-04", "MUST", "§Sending Messages 4"),
    _r("L25-S-05", "MUST", "§Sending Messages 5"),
    _r("L25-S-06", "SHOULD", "§Sending Messages 6"),
    _r("L25-S-07", "MAY", "§Sending Messages 6"),
    _r("L25-S-08", "SHOULD", "§Sending Messages 6; §Listening 4"),
    _r("L25-S-09", "SHOULD", "§Sending Messages 6"),
    _r("L25-S-10", "MAY/SHOULD", "§Sending Messages 6"),
    _r("L25-S-11", "MAY", "§Sending Messages 6"),
    _r("L25-S-12", "SHOULD NOT", "§Sending Messages 6"),
    _r("L25-S-13", "MUST", "§Listening 3"),
    _r("L25-S-14", "SHOULD/MUST NOT", "§Listening 4"),
    _r("L25-S-15", "MUST NOT", "§Multiple Connections 2"),
    _r("L25-S-16", "MAY", "§Resumability 1"),
    _r("L25-S-17", "MAY", "§Resumability 2"),
    _r("L25-S-18", "MAY", "§Session Management 1"),
    _r("L25-S-19", "SHOULD", "§Session Management 2"),
    _r("L25-S-20", "MAY/MUST", "§Session Management 3"),
    _r("L25-S-21", "MAY", "§Session Management 5"),
    _r("L25-S-22", "SHOULD", "§Protocol Version Header"),
    _r("L25-S-23", "MUST", "basic/lifecycle §Version Negotiation", is_sem=True),
    _r("L25-S-24", "SHOULD", "basic/utilities/cancellation §Behavior Requirements", is_sem=True),
    _r("L25-S-25", "should", "§Backwards Compatibility"),
    _r("L25-C-01", "MUST", "§Sending Messages 1, 3"),
    _r("L25-C-02", "MUST", "§Sending Messages 2; §Listening 2"),
    _r("L25-C-03", "MUST", "§Sending Messages 5"),
    _r("L25-C-04", "MUST", "§Sending Messages 6"),
    _r("L25-C-05", "SHOULD", "§Sending Messages 6"),
    _r("L25-C-06", "SHOULD", "§Sending Messages 6; basic/utilities/cancellation"),
    _r("L25-C-07", "MAY", "§Listening 1, 4; §Multiple Connections 1"),
    _r("L25-C-08", "SHOULD", "§Resumability 2"),
    _r("L25-C-09", "MUST", "§Session Management 1, 2"),
    _r("L25-C-10", "MUST", "§Session Management 4"),
    _r("L25-C-11", "SHOULD", "§Session Management 5"),
    _r("L25-C-12", "MUST", "§Protocol Version Header"),
    _r("L25-C-13", "der", "§Listening 3"),
    _r("L25-C-14", "should", "§Backwards Compatibility"),
    _r("L06-S-01", "SHOULD NOT", "basic/transports §Sending Messages 6"),
    _r("L06-S-02", "der", "§Sending Messages 6, which has no such event"),
    _r("L06-S-03", "MUST", "§Security Warning"),
    _r("L06-C-01", "MUST", "§Protocol Version Header"),
    _r("L06-C-02", "should", "§Backwards Compatibility"),
    _r("L03-B-01", "MUST", "basic/index §Batching; basic/transports §Sending Messages 3"),
    _r("L03-S-02", "MUST", "§Sending Messages 4 to 6"),
    _r("L03-C-03", "MUST NOT", "basic/lifecycle §Initialization"),
    _r("L03-C-04", "stated", "basic/transports"),
    _r("H24-S-01", "MUST", "basic/transports §Security Warning 1"),
    _r("H24-S-02", "SHOULD", "§Security Warning 2, 3"),
    _r("H24-S-03", "MUST", "§HTTP with SSE"),
    _r("H24-S-04", "MUST", "§HTTP with SSE"),
    _r("H24-S-05", "stated", "§HTTP with SSE"),
    _r("H24-S-06", "der", "diagram; common practice"),
    _r("H24-C-01", "MUST", "§HTTP with SSE"),
    _r("H24-C-02", "der", "common practice"),
    _r("H24-C-03", "der", "diagram"),
)

REQUIREMENTS = {requirement.id: requirement for requirement in _ALL}

NOT_APPLICABLE = {
    "M26-S-62": "for servers of 2026-07-28 only: ours serve initialize too",
}
"""Requirements that do not concern this package, each with the reason."""
