"""Several processes on one port: started, watched, restarted, stopped together.

Each worker is a fresh process that imports the server and listens with SO_REUSEPORT; the system spreads connections
over them. The parent only holds the port and watches: it takes no connection. A worker whose parent is gone stops.
"""

from __future__ import annotations

import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import sys
import time
from importlib import import_module
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from .application import Server
from .options import LISTENER, ServerOptions

__all__ = ["load_server", "run_workers"]

logger = logging.getLogger("mcpfast.server")

_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 30.0
_STEADY_AFTER_S = 30.0  # a worker that lived so long is restarted at once
_KILL_AFTER_S = 5.0  # beyond the grace
_CANNOT_START = 3  # exit code of a worker that never listened


def load_server(target: str) -> Server:
    """Import the Server that ``"module:name"`` names.

    Raises:
        ValueError: there is no such module or name, or it is no Server.
    """
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        raise ValueError(f"server must be named as 'module:server', not {target!r}")
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name and not module_name.startswith(f"{error.name}."):
            raise  # the module is there; what it imports is not
        raise ValueError(f"there is no module {module_name!r}, which {target!r} names") from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Server):
        raise ValueError(f"{target!r} is {type(found).__name__}, expected a Server")
    return found


def run_workers(target: str, host: str, port: int, workers: int, options: dict[str, Any]) -> None:
    """Run workers until SIGTERM or SIGINT; see :func:`mcpfast.run`.

    Raises:
        SystemExit: the first workers could not start; their own log says why.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ValueError("workers need SO_REUSEPORT, which this system lacks")
    checked = ServerOptions.of(options, LISTENER, "run()")
    if checked.unix_path is not None:
        raise ValueError("workers share a TCP port; with unix_path there is none")
    if checked.sse_path is not None:
        logger.warning(
            "HTTP+SSE sessions live in the worker that opened them, but connections are spread over %d workers: "
            "POSTs that reach another get 404. Run one worker, or one process per port behind a proxy that routes by "
            "the query parameter sessionid",
            workers,
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as holder:
        # Bound and never listening: it keeps the port ours, also a port that the system chose.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind((host, port))
        port = holder.getsockname()[1]
        _Workers(target, host, port, workers, {**options, "reuse_port": True}).run(checked.shutdown_grace_s)


class _Worker:
    """One place among the workers, and the process that fills it now."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: SpawnProcess | None = None
        self.started_at = 0.0
        self.start_at = 0.0
        self.delay_s = 0.0
        self.is_first = True


class _Workers:
    def __init__(self, target: str, host: str, port: int, count: int, options: dict[str, Any]) -> None:
        self._context: SpawnContext = multiprocessing.get_context("spawn")
        self._arguments = (target, host, port, options)
        self._workers = [_Worker(number) for number in range(count)]
        self._is_stopping = False

    def run(self, grace_s: float) -> None:
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)

        def told(*_: object) -> None:
            self._is_stopping = True
            os.write(wake_write, b"x")

        before = {number: signal.signal(number, told) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            while not self._is_stopping:
                self._start_due()
                waited_for = [w.process.sentinel for w in self._workers if w.process is not None]
                multiprocessing.connection.wait([wake_read, *waited_for], timeout=self._until_next_start())
                self._bury_dead()
        finally:
            self._stop(grace_s)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(wake_read)
            os.close(wake_write)

    def _start_due(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.process is None and worker.start_at <= now:
                worker.process = self._context.Process(
                    target=_work, args=self._arguments, name=f"mcpfast-worker-{worker.number}"
                )
                worker.process.start()
                worker.started_at = now

    def _until_next_start(self) -> float | None:
        starts = [worker.start_at for worker in self._workers if worker.process is None]
        return max(0.0, min(starts) - time.monotonic()) if starts else None

    def _bury_dead(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            process = worker.process
            if process is None or process.is_alive():
                continue
            process.join()
            worker.process = None
            if self._is_stopping:
                continue
            if process.exitcode == _CANNOT_START and worker.is_first:
                logger.error("worker %d could not start", worker.number)
                raise SystemExit(_CANNOT_START)
            if now - worker.started_at >= _STEADY_AFTER_S:
                worker.delay_s = 0.0
            else:
                worker.delay_s = min(max(2 * worker.delay_s, _FIRST_DELAY_S), _LONGEST_DELAY_S)
            worker.is_first = False
            worker.start_at = now + worker.delay_s
            logger.warning(
                "worker %d ended with %s, a new one starts in %g s", worker.number, process.exitcode, worker.delay_s
            )

    def _stop(self, grace_s: float) -> None:
        processes = [worker.process for worker in self._workers if worker.process is not None]
        for process in processes:
            if process.is_alive():
                process.terminate()
        give_up_at = time.monotonic() + grace_s + _KILL_AFTER_S
        for process in processes:
            process.join(max(0.0, give_up_at - time.monotonic()))
            if process.is_alive():
                logger.error("%s did not stop and is killed", process.name)
                process.kill()
                process.join()


def _work(target: str, host: str, port: int, options: dict[str, Any]) -> None:
    """A worker's whole life."""
    from .listener import run_loop, serve_until_told

    # Ctrl-C reaches the whole group: the parent tells us when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None
    is_up = False

    def ready() -> None:
        nonlocal is_up
        is_up = True

    try:
        run_loop(
            serve_until_told(
                load_server(target),
                host,
                port,
                options,
                ready=ready,
                signals=(signal.SIGTERM,),
                stop_when_readable=parent.sentinel,
            )
        )
    except Exception:
        if is_up:
            raise
        logger.exception("a worker could not start")
        sys.exit(_CANNOT_START)
