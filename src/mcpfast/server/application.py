"""``Server``: an application's methods, and what is built in around them.

It knows nothing of transports. They hand it one message at a time with a :class:`Context`, and it says what the answer
is: initialize, ping, version negotiation, capabilities and errors are here; sessions, streams and cancellation are the
transports'.
"""

from __future__ import annotations

import inspect
import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from ..errors import ProtocolError, RPCError
from ..jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSET,
    ErrorResponse,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    encode_error,
    encode_notification,
    encode_response,
)
from ..protocol.era import SERVED
from ..protocol.modern import REMOVED_METHODS, encode_result, result_prefix, status_of, wire_code
from ..protocol.revisions import negotiate
from .context import Context, Peer
from .threads import run_in_thread

if TYPE_CHECKING:
    from ..http.asgi import ASGIApp

__all__ = ["Audience", "Server", "encode_answer"]

logger = logging.getLogger("mcpfast.server")

F = TypeVar("F", bound=Callable[..., Any])
MethodHandler: TypeAlias = Callable[[Context, dict[str, Any]], Awaitable[Any]]
Lifespan: TypeAlias = "Callable[[Server], AbstractAsyncContextManager[Any]]"

_BUILT_IN = ("initialize", "ping", "server/discover", "subscriptions/listen")


class Audience(Protocol):
    """Who hears what a server publishes: the streams of one transport on one loop."""

    def publish(self, payload: bytes) -> None:
        """Send a notification, given as JSON, to all of them; may be called from any thread."""


class Server:
    """An MCP server: a name, its methods, and how each is answered.

    ::

        server = Server("demo", "1.0")

        @server.method("tools/call")
        async def call(ctx, params):
            return {"content": [{"type": "text", "text": "hello"}]}

    A handler that is a plain function runs in a thread (at most 64 at one time), with the caller's context variables.
    When its request is cancelled nothing more is sent, but the thread runs on to the function's end.

    What a handler raises becomes a JSON-RPC error: RPCError as it is, anything else ``internal error`` (-32603), with
    its text and traceback in the log ``mcpfast.server`` only.

    Args:
        name: the server's name, for clients.
        version: the server's version, for clients.
        title: a name for people.
        instructions: what a model should know about using it.
        capabilities: what to declare; None to derive it from the methods that are registered.
        lifespan: makes an async context manager, entered once for each ``serve()`` or ASGI application and left when
            that ends. It may take the server as its argument. What it gives is ``ctx.state``.
    """

    def __init__(
        self,
        name: str,
        version: str,
        *,
        title: str | None = None,
        instructions: str | None = None,
        capabilities: Mapping[str, Any] | None = None,
        lifespan: Lifespan | Callable[[], AbstractAsyncContextManager[Any]] | None = None,
    ) -> None:
        self.name = name
        self.version = version
        self.title = title
        self.instructions = instructions
        self.lifespan = lifespan
        self._capabilities = None if capabilities is None else dict(capabilities)
        self._methods: dict[str, MethodHandler] = {}
        self._notifications: dict[str, MethodHandler] = {}
        self._audiences: weakref.WeakSet[Audience] = weakref.WeakSet()
        self._stamp: tuple[bytes, dict[str, Any]] | None = None

    def __repr__(self) -> str:
        return f"<Server {self.name!r} {self.version!r}>"

    # What the application says

    def method(self, name: str) -> Callable[[F], F]:
        """Register a handler ``(ctx, params) -> result`` for requests of a method.

        ``params`` is a dict, empty if the client sent none. The result is a dict that can be JSON; None stands for {}.

        Raises:
            ValueError: there is a handler for ``name`` already, or it is built in.
        """
        if name in _BUILT_IN:
            raise ValueError(f"method {name!r} is built in")
        return self._registrar(self._methods, name)

    def notification(self, name: str) -> Callable[[F], F]:
        """Register a handler ``(ctx, params)`` for notifications of clients. What it returns is ignored.

        Raises:
            ValueError: there is a handler for ``name`` already.
        """
        return self._registrar(self._notifications, name)

    def _registrar(self, table: dict[str, MethodHandler], name: str) -> Callable[[F], F]:
        if name in table:
            raise ValueError(f"{name!r} has a handler already")

        def register(function: F) -> F:
            table[name] = _as_async(function)
            return function

        return register

    @property
    def capabilities(self) -> dict[str, Any]:
        """What is declared to clients: as given, else what the registered methods amount to."""
        if self._capabilities is not None:
            return self._capabilities
        methods = self._methods
        found: dict[str, Any] = {}
        for name in ("tools", "resources", "prompts"):
            if any(method.startswith(name + "/") for method in methods):
                # publish() may say at any time that the list has changed.
                found[name] = {"listChanged": True} if f"{name}/list" in methods else {}
        if "resources/subscribe" in methods:
            found["resources"]["subscribe"] = True
        if "completion/complete" in methods:
            found["completions"] = {}
        if "logging/setLevel" in methods:
            found["logging"] = {}
        return found

    def publish(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification to every client that listens. May be called from any thread.

        It returns at once: the message goes out at the end of the loop's turn, and a client that is too far behind is
        dropped rather than waited for. Code that publishes very much should give the loop a turn now and then.

        Raises:
            ProtocolError: ``params`` cannot be JSON.
        """
        payload = encode_notification(method, UNSET if params is None else params)
        for audience in tuple(self._audiences):
            audience.publish(payload)

    # How it is put on the wire

    def asgi(self, path: str | None = "/mcp", sse_path: str | None = "/sse", **options: Any) -> ASGIApp:
        """Return an ASGI application that serves this server.

        Without lifespan events, as when it is mounted in another application, the server's lifespan is entered by the
        first request that needs it.

        Args:
            path: where Streamable HTTP is, of every revision; None: nowhere.
            sse_path: where HTTP+SSE is; None: nowhere.
            **options: see :class:`~mcpfast.server.options.ServerOptions`.

        Raises:
            TypeError: an option is not known, or of no use to an ASGI application; the message names those that are.
        """
        from .app import asgi_app

        return asgi_app(self, {"path": path, "sse_path": sse_path, **options})

    # What transports ask

    def add_audience(self, audience: Audience) -> None:
        """Let ``audience`` hear what is published, as long as somebody holds it."""
        self._audiences.add(audience)

    async def handle(self, message: Message, ctx: Context) -> Response | ErrorResponse | None:
        """Serve one message and return the answer; None if it is owed none.

        Only cancellation is raised: what a handler raises is in the answer.
        """
        if isinstance(message, Request):
            outcome = self._built_in(message, ctx.peer)
            if outcome is None:
                outcome = await self.call(message, ctx)
            if type(outcome) is RPCError:
                data = UNSET if outcome.data is None else outcome.data
                return ErrorResponse(message.id, outcome.code, outcome.message, data)
            return Response(message.id, outcome)
        if isinstance(message, Notification):
            await self.notified(message, ctx)
        return None

    def answer_now(self, message: Request, peer: Peer) -> bytes | None:
        """Return the answer to a request that needs no handler, else None."""
        if peer.protocol_version is not None and message.method in self._methods:
            return None
        outcome = self._built_in(message, peer)
        return None if outcome is None else encode_answer(message, outcome)

    def answer_modern_now(self, message: Request) -> dict[str, Any] | RPCError | None:
        """Return what comes of a request of 2026-07-28 that needs no handler, else None."""
        method = message.method
        if method in self._methods and method not in REMOVED_METHODS:
            return None
        if method == "server/discover":
            return self._discover()
        return RPCError(METHOD_NOT_FOUND, "method not found")

    def encode_modern_answer(self, message: Request, outcome: dict[str, Any] | RPCError) -> tuple[int, bytes]:
        """Return the HTTP status of an answer of 2026-07-28, and the answer as JSON."""
        if type(outcome) is dict:
            try:
                return 200, self.encode_modern(message.id, message.method, outcome)
            except ProtocolError as error:
                logger.error("answer of %s cannot be sent: %s", message.method, error)
                outcome = RPCError(INTERNAL_ERROR, "internal error")
        assert isinstance(outcome, RPCError)
        outcome = RPCError(wire_code(outcome.code), outcome.message, outcome.data)
        return status_of(outcome.code), encode_answer(message, outcome)

    def encode_modern(self, id: RequestId, method: str, result: dict[str, Any]) -> bytes:
        """Encode an answer of 2026-07-28, with its type and this server's identity."""
        stamp = self._stamp
        if stamp is None:
            identity = self.identity
            stamp = self._stamp = result_prefix(identity), identity
        return encode_result(id, method, result, *stamp)

    @property
    def identity(self) -> dict[str, Any]:
        """Name, version and title, as clients are told."""
        identity = {"name": self.name, "version": self.version}
        if self.title is not None:
            identity["title"] = self.title
        return identity

    def _discover(self) -> dict[str, Any]:
        """Answer ``server/discover`` (M26-S-51)."""
        result: dict[str, Any] = {"supportedVersions": list(SERVED), "capabilities": self.capabilities}
        if self.instructions is not None:
            result["instructions"] = self.instructions
        return result

    def hears(self, method: str) -> bool:
        """Tell whether there is a handler for a notification."""
        return method in self._notifications

    async def notified(self, message: Notification, ctx: Context) -> None:
        """Run the handler of a notification, if there is one. Only cancellation is raised."""
        handler = self._notifications.get(message.method)
        if handler is None:
            return
        params = message.params
        try:
            await handler(ctx, params if type(params) is dict else {})
        except Exception:
            logger.exception("handler of %s failed", message.method)

    def _built_in(self, message: Request, peer: Peer) -> dict[str, Any] | RPCError | None:
        """Answer what is answered without a handler; None if there is one."""
        method = message.method
        if method == "ping":
            return {}
        if method == "initialize":
            return self._initialize(message.params, peer)
        if peer.protocol_version is None:
            return RPCError(INVALID_REQUEST, "session is not initialized: send initialize first")
        if method not in self._methods:
            return RPCError(METHOD_NOT_FOUND, "method not found")
        return None

    def _initialize(self, params: Any, peer: Peer) -> dict[str, Any] | RPCError:
        if peer.protocol_version is not None:
            return RPCError(INVALID_REQUEST, "session is initialized already")
        if type(params) is not dict or type(params.get("protocolVersion")) is not str:
            return RPCError(INVALID_PARAMS, "initialize needs protocolVersion, a string")
        peer.protocol_version = negotiate(params["protocolVersion"]).version
        info, capabilities = params.get("clientInfo"), params.get("capabilities")
        if type(info) is dict:
            peer.client_info = info
        if type(capabilities) is dict:
            peer.client_capabilities = capabilities
        result = {
            "protocolVersion": peer.protocol_version,
            "capabilities": self.capabilities,
            "serverInfo": self.identity,
        }
        if self.instructions is not None:
            result["instructions"] = self.instructions
        return result

    async def call(self, message: Request, ctx: Context) -> dict[str, Any] | RPCError:
        """Run the handler of a request, of which there is one, and return what came of it. Only cancellation is raised.

        The answer is this in :func:`encode_answer`.
        """
        handler = self._methods[message.method]
        params = message.params
        if type(params) is not dict:
            if params is not UNSET and params is not None:
                return RPCError(INVALID_PARAMS, "params must be an object")
            params = {}
        try:
            result = await handler(ctx, params)
        except RPCError as error:
            return error
        except Exception:
            logger.exception("handler of %s failed", message.method)
            return RPCError(INTERNAL_ERROR, "internal error")
        if type(result) is dict:
            return result
        if result is None:
            return {}
        if isinstance(result, Mapping):
            return dict(result)
        logger.error("handler of %s returned %s, expected a dict", message.method, type(result).__name__)
        return RPCError(INTERNAL_ERROR, "internal error")


def encode_answer(message: Request, outcome: dict[str, Any] | RPCError) -> bytes:
    """Write the answer to a request that a handler's result, or an error, came of."""
    try:
        if type(outcome) is dict:
            return encode_response(message.id, outcome)
        assert isinstance(outcome, RPCError)
        return encode_error(message.id, outcome.code, outcome.message, UNSET if outcome.data is None else outcome.data)
    except ProtocolError as error:
        logger.error("answer of %s cannot be sent: %s", message.method, error)
        return encode_error(message.id, INTERNAL_ERROR, "internal error")


def _as_async(function: Callable[..., Any]) -> MethodHandler:
    """Return ``function`` if calling it gives a coroutine, else one that runs it in a thread."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        return function

    async def in_thread(ctx: Context, params: dict[str, Any]) -> Any:
        result = await run_in_thread(function, ctx, params)
        # A decorator may have made a plain function of a coroutine function.
        return await result if inspect.isawaitable(result) else result

    return in_thread
