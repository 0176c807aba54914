"""The public names, pinned: a name that comes or goes does so on purpose, and each is documented."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mcpfast

ERRORS = {
    "AuthorizationRequired",
    "EndpointMissing",
    "EventTooLarge",
    "HTTPStatusError",
    "MCPFastError",
    "MalformedLine",
    "MethodNotAllowed",
    "ProtocolError",
    "RPCError",
    "RequestTimeout",
    "ResponseTooLarge",
    "SessionTerminated",
    "TransportClosed",
    "UnexpectedContentType",
}
CODEC = {
    "IMPLEMENTATION",
    "EventWriter",
    "SSEDecoder",
    "ServerSentEvent",
    "aiter_events",
    "encode_comment",
    "encode_event",
    "iter_events",
}
PUBLIC: dict[str, set[str]] = {
    "mcpfast": {
        *ERRORS,
        *CODEC,
        "Connection",
        "Context",
        "Server",
        "__version__",
        "connect",
        "errors",
        "run",
        "serve",
    },
    "mcpfast.errors": ERRORS,
    "mcpfast.codec": {*CODEC, "EventTooLarge", "MalformedLine"},
    "mcpfast.jsonrpc": {
        "HEADER_MISMATCH",
        "INTERNAL_ERROR",
        "INVALID_PARAMS",
        "INVALID_REQUEST",
        "MAX_BATCH",
        "METHOD_NOT_FOUND",
        "MISSING_CLIENT_CAPABILITY",
        "PARSE_ERROR",
        "UNSET",
        "UNSUPPORTED_VERSION",
        "ErrorResponse",
        "Message",
        "Notification",
        "Request",
        "RequestId",
        "Response",
        "UnsetType",
        "decode_message",
        "encode_error",
        "encode_message",
        "encode_notification",
        "encode_request",
        "encode_response",
        "is_request_id",
        "message_from_value",
        "message_to_value",
    },
    "mcpfast.protocol": {"Connection"},
    "mcpfast.http": {"Request", "Responder"},
    "mcpfast.server": {
        "Context",
        "EventStore",
        "MemoryEventStore",
        "Principal",
        "ResourceMetadata",
        "SSEHandler",
        "SSEServerTransport",
        "Server",
        "StoredEvent",
        "StreamableHTTPHandler",
        "bearer_token",
        "run",
        "serve",
    },
    "mcpfast.client": {"Client", "RetryPolicy", "SSEClientTransport", "StreamableHTTPClientTransport", "connect"},
    "mcpfast.cli": {"main"},
}


@pytest.mark.parametrize("module", PUBLIC)
def test_all_is_what_is_pinned_here(module: str) -> None:
    names = importlib.import_module(module).__all__
    assert len(names) == len(set(names))
    assert set(names) == PUBLIC[module]


def members(module: str) -> Iterator[tuple[str, Any]]:
    for name in sorted(PUBLIC[module]):
        yield name, getattr(importlib.import_module(module), name)


def public_parts(cls: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class, or a class of ours that it inherits from, defines."""
    for base in cls.__mro__:
        if base.__module__.split(".")[0] != "mcpfast":
            continue
        for name, part in vars(base).items():
            is_callable = callable(part) or isinstance(part, (property, staticmethod, classmethod))
            if not name.startswith("_") and (is_callable or inspect.isdatadescriptor(part)):
                yield name, part


@pytest.mark.parametrize("module", PUBLIC)
def test_each_public_class_and_function_is_documented(module: str) -> None:
    undocumented = []
    for name, value in members(module):
        # Constants, type aliases and submodules are documented where they are defined.
        if not (inspect.isclass(value) or inspect.isroutine(value)) or value.__module__.split(".")[0] != "mcpfast":
            continue
        if not (value.__doc__ or "").strip():
            undocumented.append(name)
        if inspect.isclass(value):
            undocumented += [
                f"{name}.{part_name}"
                for part_name, part in public_parts(value)
                if not inspect.ismemberdescriptor(part) and not (inspect.getdoc(part) or "").strip()
            ]
    assert undocumented == []


@pytest.mark.parametrize("module", PUBLIC)
def test_each_public_module_is_documented(module: str) -> None:
    assert (importlib.import_module(module).__doc__ or "").strip()


def test_each_top_level_name_is_the_one_of_its_layer() -> None:
    for name, value in members("mcpfast"):
        homes = [home for home in PUBLIC if home != "mcpfast" and name in PUBLIC[home]]
        for home in homes:
            assert getattr(importlib.import_module(home), name) is value


def test_type_checkers_see_the_names_that_load_lazily() -> None:
    tree = ast.parse(Path(mcpfast.__file__).read_text(encoding="utf-8"))
    [guarded] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.name: statement.module or ""
        for statement in guarded.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert set(seen) == PUBLIC["mcpfast"] - {"__version__"}
    for name, home in seen.items():
        if home:
            assert getattr(importlib.import_module(f"mcpfast.{home}"), name) is getattr(mcpfast, name)


def test_layers_are_attributes_and_other_names_are_not() -> None:
    for layer in ("client", "codec", "errors", "http", "jsonrpc", "protocol", "server"):
        assert getattr(mcpfast, layer) is importlib.import_module(f"mcpfast.{layer}")
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = mcpfast.nonsense
    assert PUBLIC["mcpfast"] <= set(dir(mcpfast))
