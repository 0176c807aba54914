"""What a client asked to hear on a ``subscriptions/listen`` stream, and the frames of such a stream.

Every notification of the stream carries the subscription's id, which is the JSON-RPC id of the request. The rest of it
is the same for all streams, so it is encoded once and the id is set in between.

Source: MCP 2026-07-28, basic/patterns/subscriptions (M26-S-54 to M26-S-60).
"""

from __future__ import annotations

from typing import Any, Final

from .._json import dumps
from ..codec import encode_event
from ..jsonrpc import INVALID_PARAMS, Notification, Request, RequestId
from .refusal import Refusal

__all__ = ["LISTEN", "Announcement", "Subscription"]

LISTEN: Final = "subscriptions/listen"
SUBSCRIPTION_KEY: Final = "io.modelcontextprotocol/subscriptionId"

_KINDS: Final = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
_UPDATED: Final = "notifications/resources/updated"


class Announcement:
    """A notification on its way to listen streams."""

    __slots__ = ("_head", "_tail", "kind", "uri")

    def __init__(self, message: Notification) -> None:
        self.kind = _KINDS.get(message.method)
        params = message.params if type(message.params) is dict else {}
        uri = params.get("uri")
        self.uri = uri if message.method == _UPDATED and type(uri) is str else None
        """The resource that was updated."""
        meta = params.get("_meta")
        more_meta = dumps(_without(SUBSCRIPTION_KEY, meta) if type(meta) is dict else {})
        more = dumps(_without("_meta", params))
        self._head = b'event: message\ndata: {"jsonrpc":"2.0","method":%b,"params":{"_meta":{%b:' % (
            dumps(message.method),
            dumps(SUBSCRIPTION_KEY),
        )
        self._tail = b"%b%b}\n\n" % (_continued(more_meta), _continued(more))

    def frame(self, id_json: bytes) -> bytes:
        """Return the event for the stream with this subscription id, given as JSON."""
        return b"%b%b%b" % (self._head, id_json, self._tail)


def _without(key: str, members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if name != key}


def _continued(json_object: bytes) -> bytes:
    """Return the members of an object and its end, to follow another member."""
    return b"," + json_object[1:] if len(json_object) > 2 else b"}"


class Subscription:
    """What one listen request asked for. Build it with :meth:`of`."""

    __slots__ = ("id", "id_json", "kinds", "uris")

    def __init__(self, id: RequestId, kinds: frozenset[str], uris: tuple[str, ...]) -> None:
        self.id = id
        self.id_json = dumps(id)
        self.kinds = kinds
        self.uris = frozenset(uris)

    @classmethod
    def of(cls, message: Request) -> tuple[Subscription, bytes] | Refusal:
        """Return what a listen request asks for, and the acknowledgement, the first event of its stream (M26-S-54)."""
        params = message.params
        asked = params.get("notifications") if type(params) is dict else None
        if type(asked) is not dict:
            text = "params.notifications must be an object that says what to listen to"
            return Refusal(400, "params", text, INVALID_PARAMS, message.id)
        uris = asked.get("resourceSubscriptions")
        if uris is not None and (type(uris) is not list or any(type(uri) is not str for uri in uris)):
            text = "params.notifications.resourceSubscriptions must be a list of URIs"
            return Refusal(400, "params", text, INVALID_PARAMS, message.id)
        granted: dict[str, Any] = {kind: True for kind in _KINDS.values() if asked.get(kind) is True}
        subscription = cls(message.id, frozenset(granted), tuple(uris or ()))
        if uris:
            granted["resourceSubscriptions"] = uris
        acknowledgement = {
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"_meta": {SUBSCRIPTION_KEY: message.id}, "notifications": granted},
        }
        return subscription, encode_event(dumps(acknowledgement), event="message")

    def wants(self, announcement: Announcement) -> bool:
        """Tell whether the client asked for it; nothing else may be sent (M26-S-55)."""
        return announcement.kind in self.kinds or announcement.uri in self.uris

    def closing_result(self) -> dict[str, Any]:
        """Return the result that ends the stream on the server's part (M26-S-58)."""
        return {"_meta": {SUBSCRIPTION_KEY: self.id}}
