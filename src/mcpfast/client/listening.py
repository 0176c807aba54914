"""The standing GET stream of a session: what belongs to no request of ours comes here.

It is kept open for as long as the session lasts (row B9). A server need not offer one: 405, and 404 or 406 right after
``initialize``, say so, and are no cause for alarm.

Source: MCP 2025-11-25, basic/transports §Listening for Messages from the Server (L25-C-07, L25-C-13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import (
    AuthorizationRequired,
    EventTooLarge,
    HTTPStatusError,
    MethodNotAllowed,
    ProtocolError,
    UnexpectedContentType,
)
from ..http.client_request import RequestTemplate
from ..jsonrpc import Message
from .resumable import ResumableStream

if TYPE_CHECKING:
    from .streamable_channel import StreamableChannel

__all__ = ["StandingStream"]


class StandingStream:
    """Listens from when it is made until it is closed, or the server says that there is nothing to listen to."""

    def __init__(self, channel: StreamableChannel, template: RequestTemplate, session_id: str | None) -> None:
        self._channel = channel
        self._session_id = session_id
        self._url = template.url
        attempts = channel.options.retry.max_listen_attempts
        self._stream = ResumableStream(channel, self, template, attempts, must_resume=False)
        self._stream.connect()

    # StreamOwner

    def wants_more(self) -> bool:
        return True

    def take(self, message: Message) -> None:
        self._channel.deliver(message, None)

    def take_fault(self, error: ProtocolError) -> None:
        self._channel.receive_fault(error)

    def refused(self, error: Exception) -> bool:
        logger = self._channel.options.logger
        if isinstance(error, EventTooLarge):
            logger.warning("stream of %s: %s; what comes after it is listened to", self._url, error)
            self._stream.forget_position()  # else the same event would come again
            return True
        if isinstance(error, (MethodNotAllowed, AuthorizationRequired, UnexpectedContentType)):
            return False
        if isinstance(error, HTTPStatusError):
            if error.status == 400 and self._stream.last_event_id:
                self._stream.forget_position()  # the server does not know it any more
            elif error.status in (204, 404, 410) or (error.status == 406 and not self._stream.connections):
                return False
        elif not isinstance(error, OSError):  # ConnectionError and RequestTimeout are ones
            return False
        logger.debug("stream of %s could not be had: %s", self._url, error)
        return True

    def over(self, error: Exception | None) -> None:
        logger = self._channel.options.logger
        if isinstance(error, HTTPStatusError):
            is_session_over = error.status == 404 and self._stream.connections > 0
            if is_session_over and self._session_id is not None:
                self._channel.session_ended(self._session_id)
            if isinstance(error, MethodNotAllowed) or error.status in (204, 404, 406):
                logger.debug("no stream to listen to: %s", error)
                return
        if error is not None:
            logger.warning("no more listening: %s", error)

    def close(self) -> None:
        self._stream.close()
