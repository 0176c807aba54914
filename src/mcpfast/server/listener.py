"""``serve()`` and ``run()``: a Server on the native HTTP server, until somebody says stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..http.native_server import NativeServer
from ..protocol.security import is_loopback
from .app import App
from .application import Server
from .options import LISTENER, ServerOptions
from .workers import load_server, run_workers

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Listener", "run", "serve"]

logger = logging.getLogger("mcpfast.server")

_GOODBYE_S = 0.25

# Where a client on this machine finds a server that listens everywhere.
_REACHED_AT = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}


class Listener:
    """A Server that listens, from entering ``async with`` to leaving it or :meth:`close`. Made by :func:`serve`."""

    def __init__(self, server: Server, host: str, port: int, options: ServerOptions) -> None:
        is_local = options.unix_path is None and is_loopback(host)
        self._app = App(server, options, is_local=is_local)
        self._options = options
        self._host = host
        self.port = port
        """The TCP port, once there is a listener; 0 on a Unix socket."""
        self._native = NativeServer(
            self._app, limits=options.http_limits(), access_log=options.access_log, ssl=options.ssl
        )
        self._stopping: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    @property
    def url(self) -> str:
        """The URL to give to clients: that of Streamable HTTP, or of HTTP+SSE if that is all that is served.

        On a Unix socket its host is ``localhost``, for the Host header.
        """
        return self._url(self._options.path or self._options.sse_path)

    @property
    def sse_url(self) -> str:
        """The URL of HTTP+SSE.

        Raises:
            ValueError: HTTP+SSE is not served.
        """
        if self._options.sse_path is None:
            raise ValueError("HTTP+SSE is not served: sse_path is None")
        return self._url(self._options.sse_path)

    def _url(self, path: str | None) -> str:
        scheme = "http" if self._options.ssl is None else "https"
        if self._options.unix_path is not None:
            return f"{scheme}://localhost{path}"
        host = _REACHED_AT.get(self._host, self._host)
        host = f"[{host}]" if ":" in host else host
        return f"{scheme}://{host}:{self.port}{path}"

    def stats(self) -> dict[str, Any]:
        """Return what is counted.

        ``connections``, ``sessions`` and ``streams`` that are open now; ``connections_total``, ``requests``,
        ``messages_in``, ``messages_out``, ``bytes_in`` and ``bytes_out`` since the start; and by reason ``refused``
        (requests and connections turned away), ``closed`` (connections) and ``ended`` (sessions).
        """
        return self._app.stats(self._native.stats())

    def close(self) -> Awaitable[None]:
        """Begin to stop, if that was not begun: see :func:`serve`. It can be awaited, as :meth:`wait_closed` can."""
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._stop(), name="mcpfast-stop")
        return asyncio.shield(self._stopping)

    def hurry(self) -> None:
        """Give up the grace: cancel what still runs, now."""
        self._app.hurry()

    async def wait_closed(self) -> None:
        """Wait until the server has stopped, whoever stops it."""
        await self._closed.wait()
        if self._stopping is not None:
            await asyncio.shield(self._stopping)  # raises what stopping raised

    async def __aenter__(self) -> Self:
        await self._app.start()
        try:
            await self._native.start(
                host=self._host,
                port=self.port,
                path=self._options.unix_path,
                reuse_port=self._options.reuse_port,
                backlog=self._options.backlog,
            )
        except BaseException:
            await self._app.stop()
            raise
        self.port = 0 if self._options.unix_path is not None else self._native.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _stop(self) -> None:
        grace_s = self._options.shutdown_grace_s
        try:
            # Together: streams end as their sessions do, and what runs may end within the one grace. Connections are
            # dropped a little later than sessions are ended, so that clients see a proper end.
            await asyncio.gather(self._native.drain(grace_s + _GOODBYE_S), self._app.drain(grace_s))
            await self._app.stop()
        finally:
            self._closed.set()


def serve(server: Server, host: str = "127.0.0.1", port: int = 0, **options: Any) -> Listener:
    """Serve ``server`` in this event loop, until the ``async with`` block ends::

        async with serve(server, port=8000) as listener:
            print(listener.url)
            await listener.wait_closed()

    At the end nothing new is accepted, idle streams end at once, and running requests get ``shutdown_grace_s`` before
    they are cancelled.

    Args:
        host: the address to listen on. On a loopback address only names of this machine are accepted as Host.
        port: the port; 0 for any that is free.
        **options: see :class:`~mcpfast.server.options.ServerOptions`.

    Raises:
        TypeError: an option is not known; the message names those that are.
        ValueError: a value is out of range.
        OSError: on entering, when the address cannot be listened on. What the lifespan raises comes out there too.
    """
    return Listener(server, host, port, ServerOptions.of(options, LISTENER, "serve()"))


def run(server: Server | str, host: str = "127.0.0.1", port: int = 8000, *, workers: int = 1, **options: Any) -> None:
    """Serve until SIGTERM or SIGINT, then stop within the grace. Blocks. Uses uvloop where there is one.

    A second SIGINT cancels what still runs at once. In a thread other than the main one no signal comes: there use
    :func:`serve`, which can be stopped otherwise.

    Args:
        server: the Server, or where to find it: ``"module:server"``.
        host: the address to listen on.
        port: the port; 0 for any that is free.
        workers: processes that share the port. More than one needs ``"module:server"``, and sessions then need a
            proxy that sends a client to one process, which no shared port can do: see the log at the start.
        **options: see :class:`~mcpfast.server.options.ServerOptions`; with workers, values that can be pickled.

    Raises:
        TypeError: an option is not known, or workers are wanted and the server is no string.
        ValueError: a value is out of range, or ``"module:server"`` names no Server.
    """
    ServerOptions.of(options, LISTENER, "run()")  # said here rather than by each worker
    if type(workers) is not int or workers < 1:
        raise ValueError(f"workers must be an int of at least 1, not {workers!r}")
    if workers > 1:
        if not isinstance(server, str):
            raise TypeError('workers import the server themselves: name it as "module:server"')
        run_workers(server, host, port, workers, options)
        return
    found = load_server(server) if isinstance(server, str) else server
    run_loop(serve_until_told(found, host, port, options))


async def serve_until_told(
    server: Server,
    host: str,
    port: int,
    options: dict[str, Any],
    *,
    ready: Callable[[], None] | None = None,
    signals: tuple[int, ...] | None = None,
    stop_when_readable: int | None = None,
) -> None:
    """Serve until one of ``signals`` comes, or the descriptor ``stop_when_readable`` can be read.

    Without ``signals`` those are SIGTERM and SIGINT, or none in a thread that gets none.
    """
    loop = asyncio.get_running_loop()
    if signals is None:
        is_main = threading.current_thread() is threading.main_thread()
        signals = (signal.SIGTERM, signal.SIGINT) if is_main else ()
    async with serve(server, host, port, **options) as listener:
        told = 0

        def stop(number: int) -> None:
            nonlocal told
            told += 1
            if told > 1 and number == signal.SIGINT:
                listener.hurry()
            else:
                listener.close()

        undo = [_on_signal(loop, number, stop) for number in signals]
        if stop_when_readable is not None:
            loop.add_reader(stop_when_readable, listener.close)
        logger.info("serving %s at %s", server.name, listener.url)
        if ready is not None:
            ready()
        try:
            await listener.wait_closed()
        finally:
            if stop_when_readable is not None:
                loop.remove_reader(stop_when_readable)
            for undo_one in undo:
                undo_one()


def _on_signal(loop: asyncio.AbstractEventLoop, number: int, callback: Callable[[int], None]) -> Callable[[], object]:
    try:
        loop.add_signal_handler(number, callback, number)
    except NotImplementedError:  # Windows
        before = signal.signal(number, lambda *_: loop.call_soon_threadsafe(callback, number))
        return lambda: signal.signal(number, before)
    return lambda: loop.remove_signal_handler(number)


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on uvloop where there is one."""
    if sys.platform != "win32":
        try:
            import uvloop
        except ImportError:
            pass
        else:
            uvloop.run(main)
            return
    asyncio.run(main)
