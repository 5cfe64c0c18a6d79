"""What every gRPC face reads of a call itself, and how a call becomes sessions, or a refusal with its status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from frontend_svc.requests.choices import Choices, open_choices
from frontend_svc.requests.request import ClientRequest, Trace, read_trace
from frontend_svc.services import Services
from signalbox.errors import InternalError, SignalboxError
from signalbox.links import rpc

Context = grpc.aio.ServicerContext[Any, Any]


async def accept(
    services: Services, read: Callable[[], tuple[ClientRequest, int]], context: Context
) -> Choices:
    """The choices once the first is placed; a refusal ends the call with its status.

    `read` returns the request and for how many choices it is, or raises the SignalboxError that refuses it.
    """
    choices = None
    try:
        with services.metrics.counting_refusals():
            request, count = read()
            choices = await open_choices(services.processor, [request], count)
        await choices.wait_accepted()
        return choices
    except SignalboxError as error:
        await rpc.abort(context, error)
    except Exception as error:
        await rpc.abort(context, InternalError(f"internal error ({type(error).__name__})"))
    except BaseException:
        if choices is not None:
            choices.cancel()
        raise


def metadata_of(context: Context) -> dict[str, str]:
    """Headers of the call that are text."""
    return {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}


def trace_of(context: Context) -> Trace:
    """W3C trace context of the call."""
    metadata = metadata_of(context)
    return read_trace(metadata.get("traceparent", ""), metadata.get("tracestate", ""))
