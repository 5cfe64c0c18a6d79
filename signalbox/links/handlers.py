"""Handlers of gRPC methods, taken apart and made anew by interceptors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

_MAKE = {
    "unary_unary": grpc.unary_unary_rpc_method_handler,
    "unary_stream": grpc.unary_stream_rpc_method_handler,
    "stream_unary": grpc.stream_unary_rpc_method_handler,
    "stream_stream": grpc.stream_stream_rpc_method_handler,
}


def behaviour_of(handler: Any) -> Callable[..., Any]:
    """What a handler calls with its request, or requests, and the context."""
    behaviour: Callable[..., Any] = getattr(handler, _kind_of(handler))
    return behaviour


def remade(handler: Any, behaviour: Callable[..., Any], parse: Callable[[bytes], Any] | None = None) -> Any:
    """A handler of the same kind that calls `behaviour`. parse: how it reads requests; None: as the other does."""
    return _MAKE[_kind_of(handler)](
        behaviour,
        request_deserializer=parse or handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


def _kind_of(handler: Any) -> str:
    return next(kind for kind in _MAKE if getattr(handler, kind) is not None)
