"""Asks callers over gRPC for their key before anything else happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import grpc

from frontend_svc.access.access_control import FIELD, AccessControl
from frontend_svc.api.grpc.call import Context
from frontend_svc.metrics import Metrics
from signalbox.errors import SignalboxError
from signalbox.links import rpc

OPEN_PREFIXES = ("/grpc.health.v1.Health/", "/grpc.reflection.")
"""Probes cannot send a key; the protocol is public."""


class GrpcAuth(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """What is not open needs a key. Context variables set here are seen by the handler: both run in the call's task."""

    def __init__(self, access: AccessControl, metrics: Metrics) -> None:
        self._access = access
        self._metrics = metrics

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """The handler of the call, or one that refuses it."""
        if handler_call_details.method.startswith(OPEN_PREFIXES):
            return await continuation(handler_call_details)
        metadata = handler_call_details.invocation_metadata or ()
        values = [value for name, value in metadata if name == FIELD and isinstance(value, str)]
        try:
            with self._metrics.counting_refusals():
                self._access.identify(values, handler_call_details.method)
        except SignalboxError as error:
            return _make_refusal(error)
        return await continuation(handler_call_details)


def _make_refusal(refused: SignalboxError) -> Any:
    """A handler for calls of any kind. It waits for no message: who has no key could keep it waiting for ever."""

    async def refuse(requests: Any, context: Context) -> NoReturn:
        await rpc.abort(context, refused)

    return grpc.stream_stream_rpc_method_handler(refuse)
