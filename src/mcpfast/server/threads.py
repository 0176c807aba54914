"""Threads for handlers that are plain functions.

Not ``ThreadPoolExecutor``: the interpreter waits for its threads at exit, so one tool that never returns would keep a
server from stopping within its grace. These threads are daemons, start when there is work, and end when idle.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

__all__ = ["MAX_THREADS", "run_in_thread"]

MAX_THREADS = 64
"""Plain functions that run at one time in this process; further ones wait for a thread."""

_IDLE_S = 10.0


class _Pool:
    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0  # guarded by _lock, as is _free
        self._free = 0  # threads waiting for work, less the work that waits for them

    def submit(self, call: Callable[[], None]) -> None:
        with self._lock:
            self._work.put(call)
            self._free -= 1
            if self._free < 0 and self._threads < MAX_THREADS:
                self._threads += 1
                self._free += 1
                threading.Thread(target=self._serve, name=f"mcpfast-{self._threads}", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                call = self._work.get(timeout=_IDLE_S)
            except Empty:
                with self._lock:
                    if self._work.empty():
                        self._threads -= 1
                        self._free -= 1
                        return
                continue
            call()
            del call  # idle threads keep nothing of the last request alive
            with self._lock:
                self._free += 1


_pool = _Pool()


async def run_in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """Run ``function(*args)`` in a thread, with the caller's context variables, and return what it returns.

    If the caller is cancelled while the function waits for a thread, it is not run. One that runs already cannot be
    stopped: the caller goes on at once, and what the function returns or raises is dropped.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def call() -> None:
        if future.cancelled():
            return
        try:
            result, error = context.run(function, *args), None
        except Exception as caught:
            result, error = None, caught
        except BaseException as caught:  # sys.exit() in a tool must not stop the server
            result, error = None, RuntimeError(f"{type(caught).__name__} in a thread")
        if isinstance(error, StopIteration):  # a future cannot hold one
            error = RuntimeError("function raised StopIteration")
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            return  # the loop is closed, and whoever waited is gone with it

    def settle(result: Any, error: Exception | None) -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    _pool.submit(call)
    return await future
