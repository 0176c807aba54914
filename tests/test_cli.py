"""The ``mcpfast`` command, run as people run it: in a process of its own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcpfast import Server, cli

COMMAND = [sys.executable, "-W", "error", "-m", "mcpfast"]
WAIT_S = 30


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *arguments], input=stdin, capture_output=True, timeout=WAIT_S, check=False)


def decoded(result: subprocess.CompletedProcess[bytes]) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def event(data: str, *, event: str = "message", id: str = "", retry: int | None = None) -> dict[str, object]:
    return {"event": event, "data": data, "id": id, "retry": retry}


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command whose streams are pipes, killed at the end if it is still there."""
    pipe = subprocess.PIPE
    with subprocess.Popen([*COMMAND, *arguments], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


def feed(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


class TestVersion:
    LINES = re.compile(
        r"mcpfast \d+\.\d+\.\d+\S*\n"
        r"implementation (cython|python)\n"
        r"python CPython 3\.\d+\.\d+\S*\n"
        r"loop (uvloop|asyncio) \d+\.\d+\S*\n"
        r"httptools \d+\.\d+\S*\n"
        r"orjson \d+\.\d+\S*\n"
    )

    def test_prints_a_line_for_each_part_in_a_fixed_order(self) -> None:
        result = run("--version")
        assert (result.returncode, result.stderr) == (0, b"")
        assert self.LINES.fullmatch(result.stdout.decode().replace("\r\n", "\n"))

    def test_names_the_implementation_in_use(self) -> None:
        from mcpfast.codec import IMPLEMENTATION

        assert f"implementation {IMPLEMENTATION}" in run("--version").stdout.decode().splitlines()

    def test_names_asyncio_where_there_is_no_uvloop(self) -> None:
        code = "import sys; sys.modules['uvloop'] = None; from mcpfast.cli import main; main(['--version'])"
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=WAIT_S, check=True)
        assert b"\nloop asyncio 3." in result.stdout


class TestDecode:
    STREAM = b"data: one\ndata: two\n\n: comment\nid: 7\nevent: tick\nretry: 1500\ndata: x\n\ndata: last\n\n"
    EVENTS = (event("one\ntwo"), event("x", event="tick", id="7", retry=1500), event("last", id="7"))

    def test_prints_each_event_as_a_json_line(self) -> None:
        result = run("decode", stdin=self.STREAM)
        assert (result.returncode, result.stderr) == (0, b"")
        assert decoded(result) == list(self.EVENTS)

    def test_reads_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "stream.sse"
        path.write_bytes(self.STREAM)
        assert decoded(run("decode", str(path))) == list(self.EVENTS)

    def test_dash_is_standard_input(self) -> None:
        assert decoded(run("decode", "-", stdin=self.STREAM)) == list(self.EVENTS)

    def test_hostile_text_reaches_the_terminal_escaped(self) -> None:
        text = "\x1b]0;title\x07 \x7f \x9b31m \u202e \u2028 \U0001f600 \x00"
        result = run("decode", stdin=f"event: {text}\ndata: {text}\n\n".encode())
        assert decoded(result) == [event(text, event=text)]
        assert re.fullmatch(rb"[\x20-\x7e]+\r?\n", result.stdout)

    def test_invalid_utf8_becomes_replacement_characters(self) -> None:
        assert decoded(run("decode", stdin=b"data: \xff\xc0\xaf\n\n")) == [event("\ufffd\ufffd\ufffd")]

    def test_events_come_out_while_the_stream_goes_on(self) -> None:
        with running("decode") as process:
            for number in range(3):
                feed(process, b"data: %d\n\n" % number)
                assert json.loads(read_line(process)) == event(str(number))

    def test_what_came_before_an_over_long_event_is_printed(self) -> None:
        stream = b"data: fine\n\ndata: 0123456789ABCDEF\n\ndata: never\n\n"
        result = run("decode", "--max-event-bytes", "16", stdin=stream)
        assert result.returncode == 1
        assert decoded(result) == [event("fine")]
        assert re.fullmatch(
            r"mcpfast decode: EventTooLarge: event holds \d+ bytes, limit is 16\s+", result.stderr.decode()
        )

    def test_an_over_long_event_ends_the_command_while_the_stream_stays_open(self) -> None:
        with running("decode", "--max-event-bytes", "16") as process:
            feed(process, b"data: " + b"x" * 100)
            assert process.wait(WAIT_S) == 1

    def test_strict_stops_at_a_line_that_is_no_field(self) -> None:
        stream = b"data: fine\n\nno field \x1b[31m\ndata: never\n\n"
        result = run("decode", "--strict", stdin=stream)
        assert result.returncode == 1
        assert decoded(result) == [event("fine")]
        assert result.stderr.rstrip() == (
            rb"mcpfast decode: MalformedLine: line without a colon is no field name: 'no field \x1b[31m'"
        )
        assert run("decode", stdin=stream).returncode == 0

    def test_a_cut_off_event_is_printed_only_with_flush(self) -> None:
        assert decoded(run("decode", stdin=b"data: cut")) == []
        assert decoded(run("decode", "--flush", stdin=b"data: cut")) == [event("cut")]

    @pytest.mark.parametrize(
        "arguments",
        [["no-such-file"], ["."], ["--max-event-bytes", "0"], ["--max-event-bytes", "x"], ["--unknown"], ["a", "b"]],
        ids=" ".join,
    )
    def test_wrong_usage_and_unreadable_files_have_their_own_exit_code(self, arguments: list[str]) -> None:
        result = run("decode", *arguments)
        assert (result.returncode, result.stdout) == (2, b"")
        assert result.stderr.splitlines()[-1].startswith(b"mcpfast")

    def test_an_unreadable_name_is_escaped(self) -> None:
        assert b"cannot read 'no\\x1b[31m': " in run("decode", "no\x1b[31m").stderr

    @pytest.mark.skipif(sys.platform == "win32", reason="no such signal there")
    def test_ctrl_c_ends_it_quietly(self) -> None:
        with running("decode") as process:
            feed(process, b"data: running\n\n")
            read_line(process)
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_S) == 130
            assert process.stderr is not None
            assert process.stderr.read() == b""

    @pytest.mark.skipif(sys.platform == "win32", reason="pipes end otherwise there")
    def test_a_reader_that_leaves_early_is_no_fault(self, tmp_path: Path) -> None:
        path = tmp_path / "long.sse"
        path.write_bytes(b"data: again\n\n" * 50_000)
        with running("decode", str(path)) as process:
            read_line(process)
            assert process.stdout is not None
            process.stdout.close()
            assert process.wait(WAIT_S) == 0
            assert process.stderr is not None
            assert process.stderr.read() == b""

    @pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
    def test_an_output_that_takes_nothing_is_told_in_a_line(self) -> None:
        with open("/dev/full", "wb") as full:
            result = subprocess.run(
                [*COMMAND, "decode"], input=b"data: x\n\n", stdout=full, stderr=subprocess.PIPE, timeout=WAIT_S
            )
        assert result.returncode == 2
        assert result.stderr == b"mcpfast decode: cannot write standard output: No space left on device\n"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
@pytest.mark.parametrize("arguments", [["decode"], ["--version"]], ids=" ".join)
def test_a_closed_output_is_told_in_a_line(arguments: list[str]) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *arguments]
    result = subprocess.run(command, input=b"data: x\n\n", stderr=subprocess.PIPE, timeout=WAIT_S)
    assert (result.returncode, result.stderr) == (2, b"mcpfast: standard output is closed\n")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes end otherwise there")
def test_versions_for_a_reader_that_has_left_are_no_fault() -> None:
    with running("--version") as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(WAIT_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_no_command_is_wrong_usage() -> None:
    result = run()
    assert result.returncode == 2
    assert b"usage: mcpfast" in result.stderr


class TestDemo:
    def test_holds_a_conversation_and_prints_its_speed(self) -> None:
        result = run("demo", "--calls", "100", "--events", "300")
        assert (result.returncode, result.stderr) == (0, b"")
        about, session, calls, stream, codec = result.stdout.decode().splitlines()
        assert re.fullmatch(r"mcpfast \S+ \((cython|python)\), CPython \S+, (uvloop|asyncio) \S+", about)
        assert re.fullmatch(r"session   http://127\.0\.0\.1:\d+/sse, tools: echo, count", session)
        assert re.fullmatch(r"calls     100 answered right, 16 in flight: [\d,]+ calls/s", calls)
        assert re.fullmatch(r"stream    300 notifications received in order: [\d,]+ events/s", stream)
        assert re.fullmatch(r"codec     300 notifications encoded and decoded in memory: [\d,]+ events/s", codec)

    def test_a_wrong_answer_is_told_and_ends_with_1(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server = Server("liar", "1.0")

        @server.method("tools/list")
        async def list_tools(ctx: object, params: object) -> dict[str, object]:
            return {"tools": [{"name": "echo"}, {"name": "count"}]}

        @server.method("tools/call")
        async def call_tool(ctx: object, params: object) -> dict[str, object]:
            return {"content": [{"type": "text", "text": "\x1b[31mwrong"}]}

        monkeypatch.setattr(cli, "_demo_server", lambda: server)
        assert cli.main(["demo", "--calls", "1"]) == 1
        assert "mcpfast demo: wrong answer to call 0: [{'type': 'text', 'text': '\\x1b[31mwrong'}]" in (
            capsys.readouterr().err
        )

    def test_an_error_answer_is_told_and_ends_with_1(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(cli, "_demo_server", lambda: Server("empty", "1.0"))
        assert cli.main(["demo", "--calls", "1"]) == 1
        assert capsys.readouterr().err == "mcpfast demo: RPCError: method not found (-32601)\n"
