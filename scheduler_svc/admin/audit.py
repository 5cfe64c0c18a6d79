"""What an operator reads behind an incident: who changed what at this scheduler, and from where."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.json_format import MessageToJson

from signalbox.links.tls.guard import names_of

logger = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]
CHANGING = {"ResetPrefixCache", "DrainWorker", "SetSafeMode", "LiftSafeMode", "ReloadTenants"}
"""Methods of AdminService that change something; the others are asked again and again by boards."""
MAX_CHARS = 512


class AdminAudit(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Writes a line for each call that changes something, with its outcome."""

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """The handler, with a line behind it."""
        handler = await continuation(handler_call_details)
        service, _, method = handler_call_details.method.rpartition("/")
        if handler is None or service != "/signalbox.v1.AdminService" or method not in CHANGING:
            return handler
        behaviour = handler.unary_unary

        async def call(request: Any, context: Context) -> Any:
            outcome = "cancelled"
            try:
                answer = await behaviour(request, context)
                outcome = "ok"
                return answer
            except Exception as error:
                code: Any = context.code()  # type: ignore[attr-defined]
                outcome = _name_of(code) or type(error).__name__
                raise
            finally:
                _write(method, request, context, outcome)

        return grpc.unary_unary_rpc_method_handler(
            call,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )


def _write(method: str, request: Any, context: Context, outcome: str) -> None:
    body = MessageToJson(request, indent=None, preserving_proto_field_name=True)
    fields = {
        "method": method,
        "request": body[:MAX_CHARS],
        "caller": ",".join(names_of(context))[:MAX_CHARS],  # empty: without certificates nobody has a name
        "client": context.peer(),
        "outcome": outcome,
    }
    logger.info("admin call", extra=fields)


def _name_of(code: Any) -> str:
    """The name of a gRPC status, which a context tells as such or as its number; empty: there is none."""
    for status in grpc.StatusCode:
        if code in (status, status.value[0]) and status is not grpc.StatusCode.OK:
            return status.name
    return ""
