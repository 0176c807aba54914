"""Every error this package raises, in one tree.

::

    MCPFastError
    ├── EventTooLarge          (ValueError)    one event of a stream is over the decoder's limit
    ├── MalformedLine          (ValueError)    a line that is no field, seen by a strict decoder
    ├── ProtocolError          (ValueError)    the peer sent, or we were asked to send, no valid message
    ├── ResponseTooLarge                       an HTTP answer is over the client's limit
    ├── TransportClosed                        used after close, or the connection is gone
    ├── SessionTerminated                      404 for a session: it is over, initialize again
    ├── MethodNotAllowed                       405 on GET: the server offers no such stream
    ├── AuthorizationRequired                  401 or 403: carries the auth object and the challenge
    ├── HTTPStatusError                        any other status that is no success
    ├── UnexpectedContentType                  an answer of a type MCP does not know
    ├── EndpointMissing                        an HTTP+SSE stream that did not begin with ``endpoint``
    ├── RPCError                               the peer answered with a JSON-RPC error
    └── RequestTimeout         (TimeoutError)  a time limit ran out; the message names which

Messages are in lower case and say what came, what was allowed, and where. Payloads and tokens never
appear in them; the facts are attributes too. Each error can be pickled and copied.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AuthorizationRequired",
    "EndpointMissing",
    "EventTooLarge",
    "HTTPStatusError",
    "MCPFastError",
    "MalformedLine",
    "MethodNotAllowed",
    "ProtocolError",
    "RPCError",
    "RequestTimeout",
    "ResponseTooLarge",
    "SessionTerminated",
    "TransportClosed",
    "UnexpectedContentType",
]


class MCPFastError(Exception):
    """Root of every error that mcpfast raises on purpose."""


class EventTooLarge(MCPFastError, ValueError):
    """One event of a stream is larger than the decoder may hold.

    Attributes:
        size: bytes seen of the event so far; the true size may be larger.
        limit: ``max_event_bytes`` of the decoder.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(size, limit)
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return f"event holds {self.size} bytes, limit is {self.limit}"


class MalformedLine(MCPFastError, ValueError):
    """A line without a colon that is no field name, met by a decoder with ``strict=True``.

    Attributes:
        line: the first 64 bytes of the line.
    """

    def __init__(self, line: bytes) -> None:
        line = bytes(line[:64])
        super().__init__(line)
        self.line = line

    def __str__(self) -> str:
        shown = self.line.decode("ascii", "backslashreplace").encode("unicode_escape").decode("ascii")
        return f"line without a colon is no field name: '{shown}'"


class ProtocolError(MCPFastError, ValueError):
    """Something that is no valid JSON-RPC or MCP message.

    Attributes:
        code: the JSON-RPC error code that fits, such as -32700 (not JSON) or -32600 (wrong shape).
        id: the id of the message at fault where it could be read, else None.
    """

    def __init__(self, message: str, *, code: int = -32600, id: str | int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.id = id

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))


class ResponseTooLarge(MCPFastError):
    """An HTTP answer is larger than the client may hold.

    Attributes:
        size: bytes announced or seen so far.
        limit: the client's limit in bytes.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(size, limit)
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return f"response holds {self.size} bytes, limit is {self.limit}"


class TransportClosed(MCPFastError):
    """The connection was closed, by us or by the peer; nothing more can be sent or received."""


class SessionTerminated(MCPFastError):
    """The server answered 404 for our session: it is over, and a new ``initialize`` is needed.

    Attributes:
        was_refused: the message itself was answered so: it was not carried out and may be sent again. False where its
            answer was being waited for.
    """

    def __init__(self, message: str = "session is over", *, was_refused: bool = True) -> None:
        super().__init__(message)
        self.was_refused = was_refused

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))


class HTTPStatusError(MCPFastError):
    """The peer answered with a status that is no success.

    Attributes:
        status: the HTTP status code.
        body: the first 512 bytes of the body.
    """

    def __init__(self, status: int, body: bytes = b"", *, what: str = "request") -> None:
        body = bytes(body[:512])
        super().__init__(status, body)
        self.status = status
        self.body = body
        self.what = what

    def __str__(self) -> str:
        text = f"{self.what} was answered with status {self.status}"
        if self.body:
            shown = self.body[:200].decode("utf-8", "backslashreplace").encode("unicode_escape").decode("ascii")
            text += f": {shown}"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))


class MethodNotAllowed(HTTPStatusError):
    """The server answered GET with 405: it offers no stream there."""

    def __init__(self, body: bytes = b"", *, what: str = "GET") -> None:
        super().__init__(405, body, what=what)


class AuthorizationRequired(HTTPStatusError):
    """The server answered 401, or 403 for want of scope.

    Attributes:
        auth: the auth object the client was given, or None, so that the caller can run its flow.
        challenge: the ``WWW-Authenticate`` header as it came, or None.
    """

    def __init__(
        self,
        status: int = 401,
        body: bytes = b"",
        *,
        what: str = "request",
        auth: object = None,
        challenge: str | None = None,
    ) -> None:
        super().__init__(status, body, what=what)
        self.auth = auth
        self.challenge = challenge


class UnexpectedContentType(MCPFastError):
    """An answer whose content type MCP has no use for.

    Attributes:
        content_type: the type that came, or None.
        expected: the types that would have been fine.
    """

    def __init__(self, content_type: str | None, expected: str, *, what: str = "request") -> None:
        super().__init__(content_type, expected)
        self.content_type = content_type
        self.expected = expected
        self.what = what

    def __str__(self) -> str:
        came = "no content type" if self.content_type is None else f"content type {self.content_type[:100]!r}"
        return f"{self.what} was answered with {came}, expected {self.expected}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))


class EndpointMissing(MCPFastError):
    """An HTTP+SSE stream did not begin with an ``endpoint`` event, or named an endpoint we refuse."""


class RPCError(MCPFastError):
    """The peer answered a request with a JSON-RPC error; handlers raise it to answer with one.

    Attributes:
        code: the JSON-RPC error code.
        message: the peer's short text.
        data: the peer's further data, any JSON value, or None.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.code = code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"


class RequestTimeout(MCPFastError, TimeoutError):
    """A time limit ran out; the message names which one and how long it was.

    Attributes:
        seconds: the limit.
    """

    def __init__(self, message: str, *, seconds: float | None = None) -> None:
        super().__init__(message)
        self.seconds = seconds

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))


def _rebuild(cls: type[MCPFastError], args: tuple[Any, ...], state: dict[str, Any]) -> MCPFastError:
    """Build a pickled error whose constructor takes more than its ``args``."""
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error
