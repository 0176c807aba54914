"""A client that sends the very bytes it is told to, and reads answers without any library of ours.

It judges framing itself: a chunked body without its last chunk, or one shorter than its length, is a
``Truncated`` answer.
"""

from __future__ import annotations

import asyncio
import socket
import ssl as ssl_module
from dataclasses import dataclass, field
from types import TracebackType

__all__ = ["RawClient", "RawResponse", "Truncated"]

WAIT_S = 10.0  # no wait of a test is longer: a hang is a failure


class Truncated(Exception):
    """The connection ended before the answer did. Holds what came of its body."""

    def __init__(self, body: bytes) -> None:
        super().__init__(len(body))
        self.body = body


@dataclass
class RawResponse:
    version: bytes
    status: int
    reason: bytes
    fields: list[tuple[bytes, bytes]]
    body: bytes = b""
    chunks: list[bytes] = field(default_factory=list)
    """Of a chunked body: its chunks, as the server cut them."""

    def get(self, name: bytes) -> bytes | None:
        """The only value of ``name``, or None; two values are an error."""
        values = [value for key, value in self.fields if key.lower() == name]
        assert len(values) < 2, f"{name!r} came {len(values)} times"
        return values[0] if values else None


class RawClient:
    """One connection. Use it with ``async with``."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(
        cls,
        port: int = 0,
        *,
        path: str | None = None,
        ssl: ssl_module.SSLContext | None = None,
        receive_buffer: int | None = None,
    ) -> RawClient:
        """Connect to 127.0.0.1 or to a Unix socket.

        Args:
            receive_buffer: bytes that the system and this client take before they stop reading.
        """
        limit = receive_buffer or 1 << 20
        if path is not None:
            return cls(*await asyncio.open_unix_connection(path, limit=limit))
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
            name = "localhost" if ssl is not None else None
            return cls(*await asyncio.open_connection(sock=sock, limit=limit, ssl=ssl, server_hostname=name))
        except BaseException:
            sock.close()
            raise

    async def __aenter__(self) -> RawClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        self.writer.close()
        try:
            await asyncio.wait_for(self.writer.wait_closed(), WAIT_S)
        except (OSError, ssl_module.SSLError):
            pass  # the server was first; that is no matter here

    def abort(self) -> None:
        """Reset the connection."""
        self.writer.transport.abort()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def request(
        self,
        method: str,
        target: str,
        headers: list[tuple[str, str]] | None = None,
        body: bytes | None = None,
        *,
        version: str = "1.1",
    ) -> None:
        """Send a request; a Host, and the length of a body, are added."""
        lines = [f"{method} {target} HTTP/{version}", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in headers or []]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b""))

    async def head(self) -> RawResponse:
        """Read the head of the next answer."""
        try:
            raw = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), WAIT_S)
        except asyncio.IncompleteReadError as error:
            raise Truncated(error.partial) from None
        first, *lines = raw[:-4].split(b"\r\n")
        version, status, reason = first.split(b" ", 2)
        fields = []
        for line in lines:
            name, colon, value = line.partition(b":")
            assert colon, line
            assert name == name.strip(), line
            fields.append((name, value.strip()))
        return RawResponse(version, int(status), reason, fields)

    async def chunk(self) -> bytes:
        """Read one chunk of a chunked body; b"" is the last."""
        try:
            size = int(await asyncio.wait_for(self.reader.readuntil(b"\r\n"), WAIT_S), 16)
            data = await asyncio.wait_for(self.reader.readexactly(size + 2), WAIT_S)
        except asyncio.IncompleteReadError as error:
            raise Truncated(error.partial) from None
        assert data.endswith(b"\r\n")
        return data[:-2]

    async def response(self, *, to_head: bool = False) -> RawResponse:
        """Read a whole answer; ``to_head``: to a HEAD request."""
        response = await self.head()
        if to_head or response.status in (204, 304) or response.status < 200:
            return response
        length = response.get(b"content-length")
        if response.get(b"transfer-encoding") is not None:
            assert length is None
            try:
                while chunk := await self.chunk():
                    response.chunks.append(chunk)
            except Truncated:
                raise Truncated(b"".join(response.chunks)) from None
            response.body = b"".join(response.chunks)
        elif length is not None:
            try:
                response.body = await asyncio.wait_for(self.reader.readexactly(int(length)), WAIT_S)
            except asyncio.IncompleteReadError as error:
                raise Truncated(error.partial) from None
        else:
            response.body = await self.rest()
        return response

    async def fetch(
        self,
        method: str,
        target: str,
        headers: list[tuple[str, str]] | None = None,
        body: bytes | None = None,
        *,
        version: str = "1.1",
    ) -> RawResponse:
        """Send a request and read its answer."""
        self.request(method, target, headers, body, version=version)
        return await self.response(to_head=method == "HEAD")

    async def rest(self) -> bytes:
        """Read until the server closes."""
        return await asyncio.wait_for(self.reader.read(-1), WAIT_S)

    async def is_closed(self) -> bool:
        """Wait until the server closes; False if it sends anything instead."""
        try:
            return await self.rest() == b""
        except ConnectionError:
            return True
