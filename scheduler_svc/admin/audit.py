"""What an operator reads behind an incident: who changed what at this scheduler, and from where."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.json_format import MessageToJson

from signalbox.links.handlers import behaviour_of, remade
from signalbox.links.tls.guard import names_of

logger = logging.getLogger(__name__)
Context = grpc.aio.ServicerContext[Any, Any]
CHANGING = {
    *("ResetPrefixCache", "DrainWorker", "SetWorkerRole", "MoveRequest"),
    *("SetSafeMode", "LiftSafeMode", "ReloadTenants"),
}
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
        behaviour = behaviour_of(handler)

        async def call(request: Any, context: Context) -> Any:
            outcome = "cancelled"
            try:
                answer = await behaviour(request, context)
                outcome = "ok"
                return answer
            except grpc.aio.AbortError:
                outcome = context.code().name  # type: ignore[attr-defined]
                raise
            except Exception as error:
                outcome = type(error).__name__
                raise
            finally:
                _write(method, request, context, outcome)

        return remade(handler, call)


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
