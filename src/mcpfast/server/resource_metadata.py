"""What clients are told of a server that wants tokens: who issues them, and for what.

Source: RFC 9728 (OAuth 2.0 Protected Resource Metadata); MCP 2026-07-28,
basic/authorization/authorization-server-discovery (M26-S-64).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from .._json import dumps
from ..http.interface import Request, Responder
from ..protocol.bearer import is_scope
from ..protocol.refusal import Refusal

__all__ = ["WELL_KNOWN", "ResourceMetadata"]

WELL_KNOWN = "/.well-known/oauth-protected-resource"

READ_ONLY = Refusal(405, "method_not_allowed", "this document takes GET", headers=((b"allow", b"GET, HEAD"),))


@dataclass(frozen=True, kw_only=True)
class ResourceMetadata:
    """The metadata of a protected resource.

    Attributes:
        resource: the URL of this server as clients use it, ``"https://api.example.com/mcp"``; tokens must be for it.
        authorization_servers: the issuers whose tokens are taken.
        scopes_supported: scopes that clients may ask for.
        resource_name: a name for people.
        resource_documentation: the URL of a page for developers.

    Raises:
        ValueError: a URL is not absolute, has a fragment, or is not https (http is good for this machine only); there
            is no issuer; or a scope is none.
    """

    resource: str
    authorization_servers: Sequence[str]
    scopes_supported: Sequence[str] = ()
    resource_name: str | None = None
    resource_documentation: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.authorization_servers, str) or not self.authorization_servers:
            raise ValueError("authorization_servers must list at least one URL")
        for url in (self.resource, *self.authorization_servers):
            parts = urlsplit(url)
            is_local = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
            is_plain = url.isascii() and not any(c in url for c in '" \\')
            if (parts.scheme != "https" and not is_local) or not parts.hostname or parts.fragment or not is_plain:
                raise ValueError(f"not an absolute https URL without a fragment: {url!r}")
        for scope in self.scopes_supported:
            if not is_scope(scope):
                raise ValueError(f"not a scope: {scope!r}")

    @property
    def path(self) -> str:
        """Where the document is, on the resource's host (RFC 9728 §3.1)."""
        return WELL_KNOWN + urlsplit(self.resource).path.rstrip("/")

    @property
    def url(self) -> str:
        """The URL of the document, for challenges."""
        parts = urlsplit(self.resource)
        return f"{parts.scheme}://{parts.netloc}{self.path}"

    def document(self) -> bytes:
        """Return the document as JSON. Tokens are taken from the Authorization header only (M26-S-67)."""
        members = {
            "resource": self.resource,
            "authorization_servers": list(self.authorization_servers),
            "scopes_supported": list(self.scopes_supported) or None,
            "bearer_methods_supported": ["header"],
            "resource_name": self.resource_name,
            "resource_documentation": self.resource_documentation,
        }
        return dumps({name: value for name, value in members.items() if value is not None})

    def serve(self, request: Request, responder: Responder) -> Refusal | None:
        """Answer a request for the document, which needs no token; or say why not."""
        if request.method not in ("GET", "HEAD"):
            return READ_ONLY
        responder.respond(
            200, ((b"content-type", b"application/json"), (b"cache-control", b"max-age=3600")), self.document()
        )
        return None
