"""Which backend carries a client's requests."""

from __future__ import annotations

import urllib.request
from typing import Any

from .client_interface import Backend
from .client_request import URL
from .httpx_backend import HTTPXBackend
from .native_client import NativeClient

__all__ = ["choose_backend"]


def choose_backend(url: URL, http_client: Any = None) -> tuple[Backend, bool]:
    """Return the backend for requests to ``url``, and whether it is ours to close.

    Args:
        url: where requests go.
        http_client: an AsyncClient of httpx or httpx2, or a backend such as :class:`NativeClient`. None
            for the native client, or for httpx if a proxy is set for the address (``HTTP_PROXY``,
            ``HTTPS_PROXY``, ``ALL_PROXY``, ``NO_PROXY``, or the system's settings).

    Raises:
        TypeError: ``http_client`` is none of these.
    """
    if http_client is None:
        if not _has_proxy(url):
            return NativeClient(), True
        import httpx

        return HTTPXBackend(httpx.AsyncClient(), owned=True), True
    if hasattr(http_client, "start") and hasattr(http_client, "aclose"):
        return http_client, False
    return HTTPXBackend(http_client), True


def _has_proxy(url: URL) -> bool:
    proxies = urllib.request.getproxies()
    if url.scheme not in proxies and "all" not in proxies:
        return False
    return not urllib.request.proxy_bypass(url.netloc)
