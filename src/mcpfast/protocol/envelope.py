"""What a client of 2026-07-28 puts around each call: ``_meta`` in the body, and the headers that mirror it.

The greater part of a request's JSON is the same for every call of a method, so it is encoded once; the params are set
in between as JSON.

Source: MCP 2026-07-28, basic/index §`_meta`; basic/transports/streamable-http §Standard Request Headers (M26-C-03,
M26-C-04, M26-C-13, M26-C-16).
"""

from __future__ import annotations

from typing import Any

from .._json import dumps
from ..errors import ProtocolError
from ..jsonrpc import INTERNAL_ERROR, RequestId, encode_request
from .era import VERSION_KEY
from .headers import is_field_value
from .modern import CAPABILITIES_KEY, CLIENT_INFO_KEY
from .revisions import REVISIONS, Revision
from .standard_headers import METHOD_HEADER, NAME_HEADER, NAMED_BY, VERSION_HEADER, encode_value

__all__ = ["Envelope", "mirrored_headers", "mirrored_name", "revision_of"]

MAX_KEPT = 256
"""Methods whose beginning is kept. There are some twenty; more would be an application that makes them up."""


class Envelope:
    """Encodes the requests of one client.

    Args:
        version: the revision of its requests.
        client_info: name, version and so on.
        capabilities: what it offers.

    Raises:
        ProtocolError: they cannot be JSON.
    """

    __slots__ = ("_heads", "_meta", "_meta_json", "version")

    def __init__(self, version: str, client_info: dict[str, Any], capabilities: dict[str, Any]) -> None:
        self.version = version
        self._meta = {VERSION_KEY: version, CLIENT_INFO_KEY: client_info, CAPABILITIES_KEY: capabilities}
        self._meta_json = dumps(self._meta)[:-1]
        self._heads: dict[str, bytes] = {}

    def request(self, id: int, method: str, params: Any, *, wants_progress: bool = False) -> bytes:
        """Return the JSON of a request; its id is its progress token.

        The caller's own ``_meta`` is kept, but the revision is ours.

        Raises:
            ProtocolError: ``params`` is no object, or cannot be JSON.
        """
        head = self._heads.get(method)
        if head is None:
            head = self._head(method)
        if not params:
            if params is not None and type(params) is not dict:
                raise _no_object(id, params)
            rest = b"}}}"
        else:
            if not isinstance(params, dict):
                raise _no_object(id, params)
            if "_meta" in params:
                return self._merged(id, method, params, wants_progress)
            try:
                rest = b"},%b}" % dumps(params)[1:]
            except ProtocolError as error:
                error.id = id
                raise
        if wants_progress:
            return b'{"jsonrpc":"2.0","id":%d%b,"progressToken":%d%b' % (id, head, id, rest)
        return b'{"jsonrpc":"2.0","id":%d%b%b' % (id, head, rest)

    def _head(self, method: str) -> bytes:
        if not isinstance(method, str):
            raise ProtocolError(f"method is {type(method).__name__}, expected str", code=INTERNAL_ERROR)
        head = b',"method":%b,"params":{"_meta":%b' % (dumps(method), self._meta_json)
        if len(self._heads) < MAX_KEPT:
            self._heads[method] = head
        return head

    def _merged(self, id: int, method: str, params: dict[str, Any], wants_progress: bool) -> bytes:
        own = params["_meta"]
        if own is not None and not isinstance(own, dict):
            raise ProtocolError("params._meta is no object", code=INTERNAL_ERROR, id=id)
        meta = {**self._meta, **(own or {}), VERSION_KEY: self.version}
        if wants_progress:
            meta["progressToken"] = id
        return encode_request(id, method, {**params, "_meta": meta})


def _no_object(id: RequestId, params: Any) -> ProtocolError:
    return ProtocolError(f"params is {type(params).__name__}, expected dict or None", code=INTERNAL_ERROR, id=id)


def revision_of(params: Any) -> Revision | None:
    """Return the revision without sessions that a message names in its ``_meta``; None for any other."""
    meta = params.get("_meta") if type(params) is dict else None
    version = meta.get(VERSION_KEY) if type(meta) is dict else None
    revision = REVISIONS.get(version) if type(version) is str else None
    return None if revision is None or revision.has_sessions else revision


def mirrored_name(method: str, params: Any) -> str | None:
    """Return what ``Mcp-Name`` mirrors of a message; None where there is nothing."""
    key = NAMED_BY.get(method)
    name = None if key is None or type(params) is not dict else params.get(key)
    return name if type(name) is str else None


def mirrored_headers(version: str, method: str, name: str | None) -> list[tuple[bytes, bytes]]:
    """Return the headers that say what the body says.

    Raises:
        ProtocolError: method or name is no text that could be sent.
    """
    try:
        method_value = method.encode("utf-8")
        fields = [(VERSION_HEADER, version.encode("ascii")), (METHOD_HEADER, method_value)]
        if name is not None:
            fields.append((NAME_HEADER, encode_value(name).encode("ascii")))
    except UnicodeEncodeError:
        raise ProtocolError("method or name holds a lone surrogate", code=INTERNAL_ERROR) from None
    if not is_field_value(method_value):
        # The base64 form is for names only, so this cannot be said in a header.
        raise ProtocolError("method holds control characters or white space at an end", code=INTERNAL_ERROR)
    return fields
