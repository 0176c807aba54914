"""run() as a process: signals, exit codes, workers (C069, C074)."""

from __future__ import annotations

import http.client
import os
import re
import select
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")

SERVER = """
import asyncio, logging, os, sys, time
from mcpfast import Server, run

logging.basicConfig(level=logging.INFO, format="%(message)s")
server = Server("proc", "1")
not_a_server = 5

@server.method("tools/call")
async def call(ctx, params):
    await asyncio.sleep(60)

@server.method("block")
def block(ctx, params):
    print("blocking", file=sys.stderr, flush=True)
    time.sleep(60)

@server.method("pid")
async def pid(ctx, params):
    return {"pid": os.getpid()}

@server.method("die")
async def die(ctx, params):
    os._exit(9)
"""


@contextmanager
def running(tmp_path: Path, call: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a program that ends in ``call``; yields it and its port once it serves."""
    (tmp_path / "app.py").write_text(SERVER, encoding="utf-8")
    (tmp_path / "main.py").write_text(
        textwrap.dedent(f"""
        from app import *
        if __name__ == "__main__":
            {call}
            print("ran to its end", file=sys.stderr)
        """),
        encoding="utf-8",
    )
    process = subprocess.Popen([sys.executable, "main.py"], cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        yield process, int(read_until(process, rb"serving proc at http://127\.0\.0\.1:(\d+)/mcp")[1])
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def read_until(process: subprocess.Popen[bytes], pattern: bytes, count: int = 1) -> re.Match[bytes]:
    """Read the log until ``pattern`` was found ``count`` times."""
    assert process.stderr is not None
    log = b""
    give_up_at = time.monotonic() + 30
    while True:
        found = list(re.finditer(pattern, log))
        if len(found) >= count:
            return found[-1]
        assert select.select([process.stderr], [], [], give_up_at - time.monotonic())[0], log
        piece = os.read(process.stderr.fileno(), 65536)
        assert piece, log
        log += piece


def log_of(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stderr is not None
    return process.stderr.read()


class Session:
    def __init__(self, port: int) -> None:
        self.port = port
        self.stream = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        self.stream.request("GET", "/sse")
        self.answer = self.stream.getresponse()
        self.endpoint = self.event()
        self.post('{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05"}}')
        self.event()

    def event(self) -> str:
        lines = iter(self.answer.readline, b"\n")
        return next(line[6:].decode().strip() for line in list(lines) if line.startswith(b"data: "))

    def post(self, body: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("POST", self.endpoint, body, {"content-type": "application/json"})
        status = connection.getresponse().status
        connection.close()
        return status

    def close(self) -> None:
        self.answer.close()
        self.stream.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_process_within_the_grace_with_exit_code_0(tmp_path: Path, number: int) -> None:
    """C074: with an idle stream, a running call, and a thread that never returns."""
    with running(tmp_path, "run(server, port=0, shutdown_grace_s=0.3)") as (process, port):
        idle, busy, blocked = Session(port), Session(port), Session(port)
        assert busy.post('{"jsonrpc":"2.0","id":1,"method":"tools/call"}') == 202
        assert blocked.post('{"jsonrpc":"2.0","id":1,"method":"block"}') == 202
        read_until(process, b"blocking")
        started = time.monotonic()
        process.send_signal(number)
        assert idle.answer.read() == b""
        assert busy.answer.read() == b""
        assert process.wait(10) == 0
        assert time.monotonic() - started < 5
        log = log_of(process)
        assert b"ran to its end" in log
        assert b"Traceback" not in log
        for session in (idle, busy, blocked):
            session.close()


def test_a_second_interrupt_does_not_wait_for_the_grace(tmp_path: Path) -> None:
    with running(tmp_path, "run(server, port=0, shutdown_grace_s=60)") as (process, port):
        idle, busy = Session(port), Session(port)
        busy.post('{"jsonrpc":"2.0","id":1,"method":"tools/call"}')
        process.send_signal(signal.SIGINT)
        assert idle.answer.read() == b""
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        idle.close()
        busy.close()


def test_workers_share_a_port_and_are_restarted_and_stopped_together(tmp_path: Path) -> None:
    """C069: a miss is 404 with a word about it, and the start says what sessions need."""
    with running(tmp_path, 'run("app:server", port=0, workers=2, shutdown_grace_s=0.3)') as (process, port):
        assert process.poll() is None
        pids = set()
        sessions = []
        give_up_at = time.monotonic() + 20
        while len(pids) < 2 and time.monotonic() < give_up_at:
            session = Session.__new__(Session)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("GET", "/sse")
            session.stream, session.port, session.answer = connection, port, connection.getresponse()
            session.endpoint = session.event()
            sessions.append(session)
            statuses = {session.post('{"jsonrpc":"2.0","id":1,"method":"ping"}') for _ in range(5)}
            assert statuses <= {202, 404}
            if 404 in statuses:  # this POST reached the other worker
                pids = {1, 2}
        assert len(pids) == 2
        for session in sessions:
            session.close()
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
        assert time.monotonic() - started < 8
        log = log_of(process)
        assert b"Traceback" not in log
        assert b"ran to its end" in log


def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    with running(tmp_path, 'run("app:server", port=0, workers=2, shutdown_grace_s=0.3)') as (process, port):
        killed = False
        for _ in range(50):
            session = Session.__new__(Session)
            session.port, session.stream = port, http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            session.stream.request("GET", "/sse")
            session.answer = session.stream.getresponse()
            session.endpoint = session.event()
            init = '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05"}}'
            try:
                if session.post(init) == 202 and session.post('{"jsonrpc":"2.0","id":1,"method":"die"}') == 202:
                    killed = True
                    break
            except (ConnectionError, http.client.RemoteDisconnected):
                killed = True
                break
            finally:
                session.close()
        assert killed
        read_until(process, rb"worker \d ended with 9, a new one starts in 0\.5 s(.|\n)*serving proc")
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0


def test_workers_whose_parent_is_killed_stop_by_themselves(tmp_path: Path) -> None:
    with running(tmp_path, 'run("app:server", port=0, workers=2, shutdown_grace_s=0.3)') as (process, port):
        session = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        session.request("GET", "/sse")
        answer = session.getresponse()
        process.kill()
        assert answer.read().endswith(b"\n\n")
        session.close()
        give_up_at = time.monotonic() + 10
        while time.monotonic() < give_up_at:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=1):
                    pass  # the other worker has not noticed yet
            except ConnectionRefusedError:
                break
            time.sleep(0.05)
        else:
            pytest.fail("a worker still listens")


def test_workers_that_cannot_start_end_the_process_with_a_word(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SERVER, encoding="utf-8")
    code = "from mcpfast import run\nif __name__ == '__main__': run('app:not_a_server', port=0, workers=2)"
    (tmp_path / "main.py").write_text(code, encoding="utf-8")
    done = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 3
    assert b"is int, expected a Server" in done.stderr


def test_what_run_cannot_do_is_said_at_once() -> None:
    from mcpfast import Server, run

    server = Server("x", "1")
    with pytest.raises(TypeError, match="module:server"):
        run(server, workers=2)
    with pytest.raises(ValueError, match="workers"):
        run(server, workers=0)
    with pytest.raises(TypeError, match="no option 'prt'"):
        run(server, prt=1)
    for target in ("nonsense", "no_such_module:server", "json:loads", "json:no.such", ":x", "x:"):
        with pytest.raises(ValueError, match=r"module|expected a Server"):
            run(target)
