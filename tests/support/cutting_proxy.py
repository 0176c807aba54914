"""A TCP proxy that cuts connections on cue: what is lost between two good ends."""

from __future__ import annotations

import asyncio
from types import TracebackType

WAIT_S = 10.0


class CuttingProxy:
    """Passes everything on to ``port`` of the loopback address, until told not to.

    Attributes:
        port: where it listens.
        cut_after: once the server sends this, the connection is reset with it; for one time each.
        cuts: how often that has happened.
        connections: how many were made.
    """

    def __init__(self, port: int) -> None:
        self.port = 0
        self.cut_after: list[bytes] = []
        self.cuts = 0
        self.connections = 0
        self._target = port
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> CuttingProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=WAIT_S)
        await asyncio.sleep(0)

    def lead_to(self, port: int) -> None:
        """Reset every connection; new ones lead to another port."""
        self._target = port
        for task in self._tasks:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
            up = asyncio.ensure_future(self._pass(reader, server_writer, cuts=False))
            down = asyncio.ensure_future(self._pass(server_reader, writer, cuts=True))
            try:
                await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                up.cancel()
                down.cancel()
                await asyncio.wait({up, down})
                server_writer.transport.abort()
        except asyncio.CancelledError:
            pass  # by us; left to itself it would be logged as an accident
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, cuts: bool) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
                if cuts and self.cut_after and self.cut_after[0] in data:
                    self.cut_after.pop(0)
                    self.cuts += 1
                    await asyncio.sleep(0.02)  # what a reset overtakes is lost, and this is to arrive
                    return
        except ConnectionError:
            pass
