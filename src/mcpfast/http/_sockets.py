"""Listening sockets with the options that every connection accepted from them inherits."""

from __future__ import annotations

import os
import socket
import stat
import sys
from typing import Any

from .limits import HTTPLimits

__all__ = ["bind_tcp", "bind_unix", "set_peer_options", "unlink_unix"]


def bind_tcp(host: str, port: int, *, reuse_port: bool) -> list[socket.socket]:
    """Return one socket for each address of ``host``; "" is every interface. Port 0 picks one free port for all."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                listening = socket.socket(family, kind, protocol)
            except OSError:
                continue  # a family this machine resolves but does not speak
            bound.append(listening)
            if sys.platform != "win32":  # where it would allow two servers on one port
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if reuse_port:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.setblocking(False)
            listening.bind((address[0], port, *address[2:]))
            port = listening.getsockname()[1]
        if not bound:
            raise OSError(f"no address of {host!r} can be listened on")
    except OSError:
        for listening in bound:
            listening.close()
        raise
    return bound


def bind_unix(path: str) -> socket.socket:
    """Return a socket at ``path``, in place of one that a dead process left there."""
    try:
        if stat.S_ISSOCK(os.stat(path).st_mode):
            os.unlink(path)
    except FileNotFoundError:
        pass
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.bind(path)
    except OSError:
        listening.close()
        raise
    return listening


def unlink_unix(path: str, inode: int) -> None:
    """Remove the socket at ``path`` if it is still the one with ``inode``, not one of our successor."""
    try:
        if os.stat(path).st_ino == inode:
            os.unlink(path)
    except FileNotFoundError:
        pass


def set_peer_options(listening: socket.socket, limits: HTTPLimits) -> None:
    """Have accepted TCP connections send at once, and find a peer that vanished without a word.

    Set on the listening socket, as accepted ones inherit it: no system call per connection. Systems
    without an option go without it.
    """
    if listening.family not in (socket.AF_INET, socket.AF_INET6):
        return
    seconds = limits.tcp_user_timeout_s
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # With TCP_USER_TIMEOUT, Linux drops a quiet connection when it has been quiet for that long and a
    # probe went unanswered; one that has data on the way, when nothing was acknowledged for that long.
    options: dict[str, Any] = {
        "TCP_USER_TIMEOUT": round(seconds * 1000),
        "TCP_KEEPIDLE": max(1, round(seconds * 2 / 3)),
        "TCP_KEEPALIVE" if sys.platform == "darwin" else "TCP_KEEPIDLE": max(1, round(seconds * 2 / 3)),
        "TCP_KEEPINTVL": max(1, round(seconds / 3)),
        "TCP_KEEPCNT": 3,
    }
    for name, value in options.items():
        option = getattr(socket, name, None)
        if option is not None:
            listening.setsockopt(socket.IPPROTO_TCP, option, value)
