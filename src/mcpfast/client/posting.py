"""One message as a POST: sent, accepted or refused, within its time."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import RequestTimeout
from ..http.client_interface import ClientResponse
from ..http.client_request import RequestTemplate
from ..http.deadlines import Deadline, Deadlines
from ..http.interface import HeaderList
from ..jsonrpc import RequestId
from .channel import OnSent
from .sender import Attempt, Sender

__all__ = ["AcceptedPost"]

# How long a POST may go on after the answer to its message came by another way.
_LEAVE_S = 10.0


class AcceptedPost:
    """A POST of HTTP+SSE: any 2xx says that the server took the message, whatever its body (C047).

    Args:
        on_done: called with this object once it is over, in whichever way.
    """

    __slots__ = ("_attempt", "_deadlines", "_on_done", "_on_sent", "_request_id", "_response", "_sender", "_template",
                 "_timeout", "_timer")  # fmt: skip

    def __init__(
        self,
        sender: Sender,
        template: RequestTemplate,
        on_sent: OnSent,
        on_done: Callable[[AcceptedPost], None],
        request_id: RequestId | None,
        timeout: float,
        deadlines: Deadlines,
    ) -> None:
        self._sender = sender
        self._template = template
        self._on_sent: OnSent | None = on_sent
        self._on_done: Callable[[AcceptedPost], None] | None = on_done
        self._request_id = request_id
        self._deadlines = deadlines
        self._timeout = timeout
        self._timer: Deadline | None = None
        self._response: ClientResponse | None = None
        self._attempt: Attempt | None = None

    def start(self, data: bytes, extra: HeaderList, urgent: bool) -> None:
        """Send ``data``. Raises as :meth:`Sender.start`."""
        self._attempt = self._sender.start(self._template, self._respond, data, extra, urgent=urgent)
        self._timer = self._deadlines.after(self._timeout, self._time_out)

    def cancel(self) -> None:
        self._on_sent = None
        self._stop()

    def pause(self) -> None:
        """Its answer is not read."""

    def resume(self) -> None: ...

    def abandon(self) -> None:
        self.cancel()

    def leave(self) -> None:
        self._on_sent = None
        if self._on_done is not None:
            assert self._timer is not None
            self._timer.cancel()
            self._timer = self._deadlines.after(_LEAVE_S, self._stop)

    def _stop(self) -> None:
        if self._on_done is not None:
            if self._attempt is not None:
                self._attempt.cancel()
            if self._response is not None:
                self._response.close()
            self._finish(None)

    def _finish(self, error: Exception | None) -> None:
        on_done, self._on_done = self._on_done, None
        on_sent, self._on_sent = self._on_sent, None
        if self._timer is not None:
            self._timer.cancel()
        if on_done is not None:
            on_done(self)
        if on_sent is not None:
            on_sent(error)

    def _respond(self, response: ClientResponse | None, error: Exception | None) -> None:
        if response is None:
            self._finish(error)
        elif 200 <= response.status < 300:
            response.discard()
            self._finish(None)
        else:
            self._response = response
            response.collect_refusal(self._refused)

    def _refused(self, body: bytes) -> None:
        assert self._response is not None
        self._finish(self._sender.refused(self._template, self._response, body, self._request_id))

    def _time_out(self) -> None:
        on_sent, self._on_sent = self._on_sent, None
        self._stop()
        if on_sent is not None:
            text = f"POST {self._template.url} was not answered within {self._timeout:g} s"
            on_sent(RequestTimeout(text, seconds=self._timeout))
