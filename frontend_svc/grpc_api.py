"""The public face over gRPC."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.unknown_fields import UnknownFieldSet

from frontend_svc.events import Delta, Finished
from frontend_svc.generate_input import Asked, Sampling, Trace, read_trace
from frontend_svc.intake import Intake
from frontend_svc.metrics import Metrics
from frontend_svc.models import ModelDirectory
from frontend_svc.session import Session
from signalbox import rpc
from signalbox.errors import InternalError, InvalidRequestError, SignalboxError, UnsupportedError, code_of
from signalbox.v1 import frontend_pb2 as frontend
from signalbox.v1 import generation_pb2 as generation
from signalbox.v1.frontend_pb2_grpc import GenerationServiceServicer

SERVICE = "signalbox.v1.GenerationService"
_OPTIONAL = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "max_tokens",
    "min_tokens",
    "logprobs",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
)


class GenerationServicer(GenerationServiceServicer):
    """Turns calls into sessions and deltas into messages."""

    def __init__(self, intake: Intake, directory: ModelDirectory, metrics: Metrics) -> None:
        self._intake = intake
        self._directory = directory
        self._metrics = metrics

    async def Generate(  # noqa: N802
        self, request: frontend.GenerateRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[frontend.GenerateResponse]:
        """Streams the output of one request."""
        session = await self._accept(request, context)
        try:
            yield frontend.GenerateResponse(
                accepted=frontend.Accepted(
                    request_id=session.request_id, num_prompt_tokens=session.given.num_prompt_tokens
                )
            )
            finished = None
            while finished is None:
                delta = await session.next_delta()
                finished = delta.finished
                yield make_response(delta)
        finally:
            session.cancel()  # the client left, or its deadline passed

    async def ListModels(  # noqa: N802
        self, request: frontend.ListModelsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> frontend.ListModelsResponse:
        """Models that can run now."""
        return frontend.ListModelsResponse(
            models=[
                frontend.ModelInfo(
                    id=model.name, max_model_len=model.max_tokens, num_workers=model.num_workers
                )
                for model in self._directory.models
            ]
        )

    async def _accept(
        self, request: frontend.GenerateRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> Session:
        """The session once it is placed; a refusal ends the call with its status."""
        session = None
        try:
            session = await self._open(request, context)
            await session.wait_accepted()
            return session
        except SignalboxError as error:
            await rpc.abort(context, error)
        except Exception as error:
            await rpc.abort(context, InternalError(f"internal error ({type(error).__name__})"))
        except BaseException:
            if session is not None:
                session.cancel()
            raise

    async def _open(
        self, request: frontend.GenerateRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> Session:
        try:
            return await self._intake.open(read_request(request, context))
        except SignalboxError as error:
            self._metrics.on_refused(error)
            raise


def read_request(request: frontend.GenerateRequest, context: grpc.aio.ServicerContext[Any, Any]) -> Asked:
    """What the client asks, unchecked but for what this face alone can see."""
    _refuse_unknown_fields(request)
    prompt = request.WhichOneof("prompt")
    if prompt is None:
        raise InvalidRequestError("one of text and token_ids must be given", field="prompt")
    return Asked(
        prompt=request.text if prompt == "text" else list(request.token_ids.ids),
        sampling=_read_sampling(request.sampling),
        model=request.model,
        prompt_field=prompt,
        sampling_prefix="sampling.",
        request_id=request.request_id,
        priority=request.priority,
        cache_salt=request.cache_salt,
        deadline_ms=_deadline_ms(context.time_remaining()),
        trace=_read_trace(context),
    )


def _deadline_ms(remaining_s: float | None) -> int:
    """Unix time; 0: none. A deadline of a year is none."""
    return 0 if remaining_s is None or remaining_s > 366 * 86_400 else int((time.time() + remaining_s) * 1000)


def make_response(delta: Delta) -> frontend.GenerateResponse:
    """The message of one delta."""
    finished = None if delta.finished is None else _make_finished(delta.finished)
    return frontend.GenerateResponse(
        text=delta.text,
        token_ids=delta.token_ids,
        logprobs=delta.logprobs,  # type: ignore[arg-type]  # they are the worker's own messages
        finished=finished,
    )


def _make_finished(finished: Finished) -> frontend.Finished:
    error = finished.error
    return frontend.Finished(
        reason=int(finished.reason),  # type: ignore[arg-type]
        error=None if error is None else _make_error(error),
        num_prompt_tokens=finished.num_prompt_tokens,
        num_output_tokens=finished.num_output_tokens,
        num_cached_tokens=finished.num_cached_tokens,
        stop=finished.stop,
    )


def _make_error(error: SignalboxError) -> generation.Error:
    return generation.Error(code=code_of(error), message=error.message, field=error.field)


def _read_sampling(params: generation.SamplingParams) -> Sampling:
    if params.HasField("prompt_logprobs"):
        raise UnsupportedError("prompt_logprobs is not supported yet", field="sampling.prompt_logprobs")
    given = {name: getattr(params, name) for name in _OPTIONAL if params.HasField(name)}
    return Sampling(
        **given,
        stop_token_ids=tuple(params.stop_token_ids),
        stop=tuple(params.stop),
        ignore_eos=params.ignore_eos,
        logit_bias=dict(params.logit_bias),
    )


def _read_trace(context: grpc.aio.ServicerContext[Any, Any]) -> Trace:
    metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
    return read_trace(metadata.get("traceparent", ""), metadata.get("tracestate", ""))


def _refuse_unknown_fields(request: frontend.GenerateRequest) -> None:
    """A newer client may ask for what we do not know: better no answer than one without it."""
    for message, path in ((request, ""), (request.sampling, "sampling.")):
        unknown = UnknownFieldSet(message)
        if len(unknown):
            number = unknown[0].field_number
            raise UnsupportedError(f"the field number {number} is not known here", field=f"{path}{number}")
