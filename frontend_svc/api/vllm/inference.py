"""The face that vLLM's router (vllm-router) drives: vllm.Inference."""

from __future__ import annotations

from collections.abc import AsyncIterator

from frontend_svc.api.grpc.call import Context, accept, metadata_of, trace_of
from frontend_svc.api.grpc.request import refuse_unknown_fields
from frontend_svc.api.vllm.call import matched_token, next_deltas, read_form, refuse_unserved
from frontend_svc.requests.events import Delta, Finished
from frontend_svc.requests.request import ClientRequest, FieldNames, Sampling, sampling_of
from frontend_svc.requests.sessions.session import Session
from frontend_svc.services import Services
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.errors import InvalidRequestError, UnsupportedError
from signalbox.protocol.enums import FinishReason
from signalbox.protocol.sampling import read_fields
from signalbox.vllm import inference_pb2 as inference
from signalbox.vllm.inference_pb2_grpc import InferenceServicer as Servicer

SERVICE = "vllm.Inference"
RANK_HEADER = "x-data-parallel-rank"
"""Set by the router for a worker URL that ends in @rank."""

_SERVED = {
    "": (
        "request_id", "model", "text", "token_ids", "temperature", "sampling", "decoding", "stopping", "response",
        "kv", "priority", "session_id", "watermarking",
    ),
    "sampling": ("num_sequences", "top_k", "top_p", "min_p", "seed"),
    "decoding": (
        "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias",
        "json", "regex", "choice", "grammar", "json_object", "structural_tag",
    ),
    "stopping": (
        "max_new_tokens", "min_new_tokens", "stop_token_ids", "stop_strings", "include_stop_strings", "ignore_eos",
    ),
    "response": ("output_text", "output_token_ids", "skip_special_tokens"),
    "kv": ("cache_salt",),
}  # fmt: skip
_OUR_NAMES = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "stop_strings": "stop"}
_REASONS = {
    FinishReason.STOP: inference.FinishInfo.STOP,
    FinishReason.LENGTH: inference.FinishInfo.LENGTH,
    FinishReason.ABORT: inference.FinishInfo.ABORTED,
    FinishReason.DEAD_END: inference.FinishInfo.ABORTED,  # the protocol has no word of its own
}


class InferenceServicer(Servicer):
    """Turns calls into sessions and deltas into messages."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def GenerateStream(  # noqa: N802
        self, request: inference.GenerateRequest, context: Context
    ) -> AsyncIterator[inference.GenerateResponse]:
        """Streams the output of one request."""
        choices = await accept(self._services, lambda: self._read(request, context), context)
        (session,) = choices.sessions
        try:
            prompt = inference.PromptInfo(num_prompt_tokens=session.request.num_prompt_tokens)
            yield inference.GenerateResponse(prompt_info=prompt)
            while news := await next_deltas(choices, context):
                for _, delta in news:
                    output = make_output(delta, session, request, self._services.processor.tokenizer)
                    yield inference.GenerateResponse(outputs=output)
        finally:
            choices.cancel()  # the client left, or its deadline passed

    def _read(self, request: inference.GenerateRequest, context: Context) -> tuple[ClientRequest, int]:
        refuse(request)
        if metadata_of(context).get(RANK_HEADER, "0") != "0":
            raise UnsupportedError(f"{RANK_HEADER} must be 0: there is one rank", field=RANK_HEADER)
        if self._services.processor.tokenizer is None and wants_text(request):
            field = "response.output_text"
            raise UnsupportedError(f"{field} must be false: this server has no tokenizer", field=field)
        return read_request(request, context), 1


def refuse(request: inference.GenerateRequest) -> None:
    """Raises UnsupportedError for what the request asks and we do not serve."""
    for name, served in _SERVED.items():
        message = getattr(request, name) if name else request
        refuse_unserved(message, served, f"{name}." if name else "")
    refuse_unknown_fields(request)
    if request.sampling.num_sequences > 1:
        field = "sampling.num_sequences"
        raise UnsupportedError(f"{field} above 1 is not supported", field=field)
    if request.watermarking:
        raise UnsupportedError("watermarking is not supported", field="watermarking")


def wants_text(request: inference.GenerateRequest) -> bool:
    """Text is sent unless the request says otherwise."""
    return request.response.output_text or not request.response.HasField("output_text")


def read_request(request: inference.GenerateRequest, context: Context) -> ClientRequest:
    """What the router asks, unchecked but for what this face alone can see."""
    prompt, shown = request.WhichOneof("prompt"), request.response
    if prompt is None:
        raise InvalidRequestError("one of text and token_ids must be given", field="prompt")
    return ClientRequest(
        clamp_max_tokens=True,
        use_model_defaults=False,
        prompt=request.text if prompt == "text" else list(request.token_ids.ids),
        sampling=_read_sampling(request),
        model=request.model,
        names=FieldNames(prompt=prompt, max_tokens="max_new_tokens"),
        request_id=request.request_id,
        priority=request.priority,
        cache_salt=request.kv.cache_salt,
        keep_stop=request.stopping.include_stop_strings,
        with_special_tokens=shown.HasField("skip_special_tokens") and not shown.skip_special_tokens,
        trace=trace_of(context),
    )


def _read_sampling(request: inference.GenerateRequest) -> Sampling:
    return sampling_of(
        {
            "temperature": request.temperature,  # unset is 0 on this face
            **read_fields(request.sampling),
            **read_fields(request.decoding),
            **read_fields(request.stopping, _OUR_NAMES),
            "structured_output": read_form(request.decoding, "structured_output", "decoding."),
        }
    )


def make_output(
    delta: Delta, session: Session, request: inference.GenerateRequest, tokenizer: Tokenizer | None
) -> inference.SequenceOutput:
    """The message of one delta."""
    text = ""
    if wants_text(request) and tokenizer is not None:
        text = delta.text
    return inference.SequenceOutput(
        text=text,
        num_tokens=len(delta.token_ids),
        token_ids=delta.token_ids if request.response.output_token_ids else (),
        finish_info=None if delta.finished is None else _make_finish(delta.finished, session, tokenizer),
    )


def _make_finish(finished: Finished, session: Session, tokenizer: Tokenizer | None) -> inference.FinishInfo:
    info = inference.FinishInfo(
        num_output_tokens=finished.num_output_tokens, finish_reason=_REASONS[finished.reason]
    )
    if finished.reason is not FinishReason.STOP:
        return info
    last = session.output[-1] if session.output else None
    if finished.stop:
        info.stop_string = finished.stop
    elif (token := matched_token(session)) is not None:
        info.stop_token_id = token
    elif tokenizer is not None and last is not None and last == tokenizer.eos_token_id:
        info.eos_token_id = last
    return info
