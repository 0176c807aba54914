"""The ``mcpfast`` command.

========================  ==========================================================================
``mcpfast demo``          an MCP server and client in one process: a conversation, and its speed
``mcpfast decode``        the events of a stream as JSON lines
``mcpfast --version``     what is installed and in use
========================  ==========================================================================

Exit codes: 0 done, 1 bad input or a wrong answer, 2 wrong usage or what cannot be read or written, 130 Ctrl-C.
A reader of our output that leaves early (``mcpfast decode log | head``) has what it wanted: 0.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Coroutine, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, TypeVar

from .codec import IMPLEMENTATION, ServerSentEvent, SSEDecoder, encode_event
from .errors import MCPFastError

if TYPE_CHECKING:
    from .client import Client
    from .server import Context, Server

__all__ = ["main"]

_T = TypeVar("_T")

CHUNK_BYTES = 65536
IN_FLIGHT = 16
DEMO_TIMEOUT_S = 120


class _Failed(Exception):
    """Ends a command with a message and an exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (default: that of the process) and return its exit code."""
    if sys.stdout is None:
        print("mcpfast: standard output is closed", file=sys.stderr)
        return 2
    try:
        options = _parser().parse_args(argv)
        code: int = options.run(options)
        sys.stdout.flush()
    except _Failed as failure:
        print(f"mcpfast {options.command}: {failure}", file=sys.stderr)
        return failure.code
    except BrokenPipeError:
        _give_up_stdout()
        return 0
    except KeyboardInterrupt:
        return 130
    return code


def _give_up_stdout() -> None:
    """Let what Python still holds for stdout not raise again when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mcpfast",
        description="The wire layer of the Model Context Protocol at C speed.",
        epilog=(
            "exit codes: 0 done, 1 bad input or a wrong answer, 2 wrong usage or what cannot be read or written, "
            "130 Ctrl-C"
        ),
    )
    parser.add_argument("--version", action=_PrintVersions, help="print the versions of what is in use, and exit")
    commands = parser.add_subparsers(dest="command", required=True)

    demo = commands.add_parser("demo", help="hold a conversation between our server and our client, and time it")
    demo.add_argument("--calls", type=_positive, default=5_000, metavar="N", help="tool calls (default: %(default)s)")
    demo.add_argument(
        "--events", type=_positive, default=10_000, metavar="N", help="notifications to stream (default: %(default)s)"
    )
    demo.set_defaults(run=_demo)

    decode = commands.add_parser(
        "decode",
        help="print the events of a stream as JSON lines",
        description="Print each event of a Server-Sent Events stream as one line of ASCII JSON, as it comes.",
    )
    decode.add_argument("file", nargs="?", default="-", metavar="FILE", help="the stream; - is standard input")
    decode.add_argument("--strict", action="store_true", help="stop at a line that is no field, with exit code 1")
    decode.add_argument("--flush", action="store_true", help="print an event that the end of the stream cut off, too")
    decode.add_argument(
        "--max-event-bytes",
        type=_positive,
        default=16 << 20,
        metavar="N",
        help="stop at an event of more than N bytes, with exit code 1 (default: %(default)s)",
    )
    decode.set_defaults(run=_decode)
    return parser


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{ascii(text)[:100]} is no whole number") from None
    if not 1 <= value <= sys.maxsize:
        raise argparse.ArgumentTypeError(f"{value} is not in 1 to {sys.maxsize}")
    return value


# mcpfast --version


class _PrintVersions(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print("\n".join(f"{name} {value}" for name, value in versions().items()), flush=True)
        parser.exit()


def versions() -> dict[str, str]:
    """Return what ``mcpfast --version`` prints, a line for each: a name, a space, a value.

    ``implementation`` is that of the codec, ``loop`` the event loop that :func:`mcpfast.run` takes.
    """
    import platform
    from importlib.metadata import version

    loop = f"asyncio {platform.python_version()}" if _uvloop() is None else f"uvloop {version('uvloop')}"
    return {
        "mcpfast": version("mcpfast"),
        "implementation": IMPLEMENTATION,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "loop": loop,
        "httptools": version("httptools"),
        "orjson": version("orjson"),
    }


def _uvloop() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop


def _run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on uvloop where there is one."""
    import asyncio

    uvloop = _uvloop()
    result: _T = asyncio.run(main) if uvloop is None else uvloop.run(main)
    return result


# mcpfast decode


def _decode(options: argparse.Namespace) -> int:
    decoder = SSEDecoder(max_event_bytes=options.max_event_bytes, strict=options.strict)
    with _open(options.file) as source:
        try:
            for chunk in _chunks(source, options.file):
                _print_events(decoder.feed(chunk))
                # A fault shows in the next feed; do not wait for a quiet stream's next piece.
                decoder.feed(b"")
            _print_events(decoder.close(flush=options.flush))
        except MCPFastError as fault:
            raise _Failed(1, f"{type(fault).__name__}: {fault}") from None
    return 0


def _open(file: str) -> IO[bytes]:
    try:
        # 0, not sys.stdin: that is None when the process was started without one.
        return open(0, "rb", closefd=False) if file == "-" else open(file, "rb")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise _unreadable(file, error) from None


def _chunks(source: IO[bytes], file: str) -> Iterator[bytes]:
    try:
        while chunk := source.read1(CHUNK_BYTES):  # type: ignore[attr-defined]
            yield chunk
    except OSError as error:
        raise _unreadable(file, error) from None


def _unreadable(file: str, error: Exception) -> _Failed:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    # ascii(): a name may hold what a terminal would obey.
    return _Failed(2, f"cannot read {'standard input' if file == '-' else ascii(file)}: {reason}")


def _print_events(events: list[ServerSentEvent]) -> None:
    if not events:
        return
    try:
        sys.stdout.write("".join(map(_json_line, events)))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:  # such as a full disk
        _give_up_stdout()
        raise _Failed(2, f"cannot write standard output: {error.strerror}") from None


def _json_line(event: ServerSentEvent) -> str:
    fields = {"event": event.event, "data": event.data, "id": event.id, "retry": event.retry}
    # ASCII only, so that a terminal gets no control characters; DEL is the one that JSON leaves as it is.
    return json.dumps(fields).replace("\x7f", "\\u007f") + "\n"


# mcpfast demo


def _demo(options: argparse.Namespace) -> int:
    import asyncio

    async def bounded() -> None:
        await asyncio.wait_for(_converse(options.calls, options.events), DEMO_TIMEOUT_S)

    try:
        _run(bounded())
    except asyncio.TimeoutError:
        raise _Failed(1, f"not done within {DEMO_TIMEOUT_S} s") from None
    except (MCPFastError, OSError) as error:
        raise _Failed(1, f"{type(error).__name__}: {error}") from error
    return 0


def _demo_server() -> Server:
    """Return a server with two tools: ``echo`` answers its text, ``count`` notifies ``n`` times and answers ``n``."""
    from .server import Server

    server = Server("mcpfast-demo", versions()["mcpfast"])

    def tool(name: str, argument: str, type: str) -> dict[str, Any]:
        schema = {"type": "object", "properties": {argument: {"type": type}}, "required": [argument]}
        return {"name": name, "inputSchema": schema}

    @server.method("tools/list")
    async def list_tools(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        return {"tools": [tool("echo", "text", "string"), tool("count", "n", "integer")]}

    @server.method("tools/call")
    async def call_tool(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        arguments = params["arguments"]
        if params["name"] == "echo":
            return {"content": [{"type": "text", "text": arguments["text"]}]}
        for i in range(arguments["n"]):
            await ctx.notify("notifications/message", _notice(i))
        return {"content": [{"type": "text", "text": str(arguments["n"])}]}

    return server


def _notice(number: int) -> dict[str, Any]:
    return {"level": "info", "data": number}


async def _converse(calls: int, events: int) -> None:
    """Open a session, list the tools, call them, and print what came of it; raise _Failed at a wrong answer."""
    from . import connect, serve

    about = versions()
    print(f"mcpfast {about['mcpfast']} ({about['implementation']}), {about['python']}, {about['loop']}")
    async with serve(_demo_server()) as listener, connect(listener.sse_url, transport="sse") as client:
        names = [tool["name"] for tool in (await client.request("tools/list"))["tools"]]
        _expect("tools/list", names, ["echo", "count"])
        print(f"session   {listener.sse_url}, tools: {', '.join(names)}")
        rate = await _time_calls(client, calls)
        print(f"calls     {calls:,} answered right, {IN_FLIGHT} in flight: {rate:,.0f} calls/s")
        rate = await _time_notifications(client, events)
        print(f"stream    {events:,} notifications received in order: {rate:,.0f} events/s")
    rate = _time_codec(events)
    print(f"codec     {events:,} notifications encoded and decoded in memory: {rate:,.0f} events/s")


def _expect(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise _Failed(1, f"wrong answer to {what}: {ascii(got)[:200]}, expected {ascii(wanted)[:200]}")


async def _time_calls(client: Client, calls: int) -> float:
    import asyncio
    from time import perf_counter

    numbers = iter(range(calls))

    async def caller() -> None:
        for number in numbers:  # shared: each caller takes the next free one
            text = f"call {number}"
            result = await client.request("tools/call", {"name": "echo", "arguments": {"text": text}})
            _expect(text, result["content"], [{"type": "text", "text": text}])

    started = perf_counter()
    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
    return calls / (perf_counter() - started)


async def _time_notifications(client: Client, events: int) -> float:
    from time import perf_counter

    received: list[Any] = []
    client.on_notification(lambda message: received.append(message.params))
    started = perf_counter()
    result = await client.request("tools/call", {"name": "count", "arguments": {"n": events}})
    elapsed = perf_counter() - started
    _expect("count", result["content"], [{"type": "text", "text": str(events)}])
    _expect("count: notifications", received, [_notice(i) for i in range(events)])
    return events / elapsed


def _time_codec(events: int) -> float:
    from time import perf_counter

    from .jsonrpc import encode_notification

    sent = [encode_notification("notifications/message", _notice(i)) for i in range(events)]
    elapsed = []
    for _ in range(5):  # the first round warms up; the best one was disturbed least
        decoder = SSEDecoder()
        started = perf_counter()
        stream = b"".join([encode_event(message) for message in sent])
        received: list[bytes] = []
        for start in range(0, len(stream), CHUNK_BYTES):
            received += [event.data_bytes for event in decoder.feed(stream[start : start + CHUNK_BYTES])]
        elapsed.append(perf_counter() - started)
        _expect("codec", received, sent)
    return events / min(elapsed)
