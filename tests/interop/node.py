"""Peers on Node.js: the TypeScript SDK installed once outside the checkout, and programs that tests drive.

The SDK lies in ``$XDG_CACHE_HOME/mcpfast-interop/`` (``~/.cache`` without that variable), under a name made
from what is installed. Without Node, npm or network the tests are skipped with the reason, and fail
instead when ``MCPFAST_REQUIRE_INTEROP=1`` says that they must run.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

__all__ = ["NodeError", "NodePeer", "Unavailable", "install", "program"]

_SOURCE = Path(__file__).parent / "typescript"
_INSTALLED = ("package.json", ".npmrc")
_INSTALL_TIMEOUT_S = 150
_ANSWER_TIMEOUT_S = 30
_LINE_LIMIT = 16 << 20


class Unavailable(Exception):
    """The peers cannot run here; the message says why."""


class NodeError(Exception):
    """A command failed in the peer.

    Attributes:
        code: that of the JSON-RPC error, None when it was none.
    """

    def __init__(self, message: str, code: int | None) -> None:
        super().__init__(message)
        self.code = code


def install() -> Path:
    """Return the folder whose ``node_modules`` holds the SDK, installing it when that was never done.

    Raises:
        Unavailable: there is no Node.js or npm, or the installation failed.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise Unavailable("node and npm are not both on the path")
    content = b"\0".join((_SOURCE / name).read_bytes() for name in _INSTALLED)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mcpfast-interop"
    target = cache / hashlib.sha256(content).hexdigest()[:16]
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    # Beside the target, and renamed when complete: a run that is cut off or has a rival leaves nothing half done.
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        for name in _INSTALLED:
            shutil.copy(_SOURCE / name, folder)
        try:
            subprocess.run(
                (npm, "install"), cwd=folder, check=True, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S
            )
        except subprocess.CalledProcessError as error:
            raise Unavailable(f"npm install failed: {error.stderr.strip()[-500:]}") from error
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"npm install took over {_INSTALL_TIMEOUT_S} s") from error
        try:
            os.rename(folder, target)
        except OSError:
            if not target.is_dir():  # else a rival was first
                raise
        else:
            os.mkdir(folder)  # for the context to remove
    return target


def program(name: str, installed: Path, folder: Path) -> Path:
    """Return the path of a peer's program in ``folder``, from where it finds the SDK."""
    for source in _SOURCE.glob("*.mjs"):
        shutil.copy(source, folder)
    modules = folder / "node_modules"
    if not modules.exists():
        modules.symlink_to(installed / "node_modules", target_is_directory=True)
    return folder / name


class NodePeer:
    """A program that obeys: a line of JSON per command, and one per answer."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    @asynccontextmanager
    async def running(cls, path: Path) -> AsyncIterator[NodePeer]:
        """Start the program; at the end, close its stdin, which ends it."""
        process = await asyncio.create_subprocess_exec(
            "node",
            str(path),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_LIMIT,
        )
        try:
            yield cls(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), 10)
            except asyncio.TimeoutError:
                process.kill()
                await process.wait()

    async def read(self) -> dict[str, Any]:
        """Return the next line the program says."""
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), _ANSWER_TIMEOUT_S)
        assert line, "the peer ended by itself; its stderr says why"
        message: dict[str, Any] = json.loads(line)
        return message

    async def do(self, command: str, /, **options: Any) -> Any:
        """Have the program do something and return its result.

        Raises:
            NodeError: it failed there.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": command, **options}).encode() + b"\n")
        answer = await self.read()
        if "error" in answer:
            raise NodeError(answer["error"], answer["code"])
        return answer["result"]
