"""What a client's transport and the user of it owe each other.

A *channel* is one connection of a transport: it carries encoded messages out, each with its own fate,
and hands decoded ones to its *receiver* straight from the callback that read them. There are two
receivers: the session behind :class:`~mcpfast.client.Client`, which settles calls on the spot, and the
queue behind a raw :class:`~mcpfast.protocol.Connection`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from ..errors import ProtocolError
from ..http.interface import HeaderList
from ..jsonrpc import Message, RequestId

__all__ = ["Channel", "OnSent", "Post", "Receiver"]

OnSent: TypeAlias = "Callable[[Exception | None], None]"
"""Called once with the fate of a message: None when the server took it, else the fault."""


class Receiver(Protocol):
    """Takes what a channel reads. Nothing here may raise."""

    def receive(self, message: Message) -> None:
        """Take a message of the server."""

    def receive_fault(self, error: ProtocolError) -> None:
        """Take notice of something that was no message; the channel goes on."""

    def receive_failure(self, request_id: RequestId, error: Exception) -> None:
        """A request that the server took will have no answer; ``error`` says why."""

    def receive_end(self, cause: Exception | None) -> None:
        """The channel is over, by itself: None after a clean end. Called once, and not after ``abort``."""


class Post(Protocol):
    """A message on its way out."""

    def cancel(self) -> None:
        """Give it up: ``on_sent`` is not called any more. Repeatable."""

    def abandon(self) -> None:
        """Want the answer to it no more, in the way of the transport: the server may have to be told by a
        notification besides. ``on_sent`` is not called any more. Repeatable."""

    def pause(self) -> None:
        """Read no more of its answer for now, where answers come one by one."""

    def resume(self) -> None: ...

    def leave(self) -> None:
        """Have no more interest in its fate, which is known by other means; it may still arrive."""


class Channel(Protocol):
    """One connection of a transport. Owned by one event loop."""

    session_id: str | None

    @property
    def protocol_version(self) -> str | None:
        """The revision that was agreed on or fixed."""

    def use(self, version: str | None) -> None:
        """Speak this revision from now on; None: what ``initialize`` or each message says.

        Raises:
            ProtocolError: the transport cannot carry it.
        """

    async def open(self, receiver: Receiver) -> None:
        """Connect. On any fault, and when cancelled, nothing is left open."""

    def post(
        self,
        data: bytes,
        on_sent: OnSent,
        headers: HeaderList = (),
        *,
        request_id: RequestId | None = None,
        urgent: bool = False,
        method: str | None = None,
        params: Any = None,
        receiver: Receiver | None = None,
    ) -> Post:
        """Send an encoded message; returns at once.

        Args:
            data: the message.
            on_sent: see :data:`OnSent`; not called before this returns.
            headers: for this message only, over the transport's own.
            request_id: the id if the message is a request: a refusal may carry its JSON-RPC error.
            method, params: what the message is about, for transports that tell it in headers.
            receiver: told of what comes with the answer, where answers come one by one; by default the channel's.
            urgent: others wait for it, so it must not wait for a free connection.

        Raises:
            TransportClosed: the channel is over.
        """

    def post_batch(self, data: bytes, on_sent: OnSent, messages: Sequence[Message]) -> Post:
        """Send several messages as one array.

        Raises:
            TransportClosed: the channel is over.
            ProtocolError: there are no batches here, or none of this kind.
        """

    def pause(self) -> None:
        """Read no more from the server for now; it feels the back-pressure."""

    def resume(self) -> None: ...

    def abort(self) -> None:
        """Drop everything at once: no callback comes any more. Repeatable."""

    async def aclose(self) -> None:
        """End it in good order, in bounded time. Repeatable, from any task."""
