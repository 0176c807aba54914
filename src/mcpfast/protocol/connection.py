"""The shape of a session transport, seen from inside: messages in, messages out, an end."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from ..jsonrpc import Message

__all__ = ["Connection"]


@runtime_checkable
class Connection(Protocol):
    """A stream of JSON-RPC messages in both directions, whatever carries it.

    ``async for message in connection`` ends when the connection does; ``async with`` closes it.
    Closing twice, from any task, is fine.
    """

    async def recv(self) -> Message:
        """Return the next message of the peer, waiting for it.

        Raises:
            TransportClosed: the connection has ended, and what had arrived was read.
            ProtocolError: one message was damaged; the connection goes on with the next.
        """

    async def send(self, message: Message) -> None:
        """Send one message, waiting while the peer is too far behind.

        Raises:
            TransportClosed: the connection has ended.
            ProtocolError: ``message`` cannot be JSON.
        """

    async def close(self) -> None:
        """End the connection and wake whoever waits in :meth:`recv` or :meth:`send`. Repeatable."""

    def __aiter__(self) -> Connection: ...

    async def __anext__(self) -> Message: ...

    async def __aenter__(self) -> Connection: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
