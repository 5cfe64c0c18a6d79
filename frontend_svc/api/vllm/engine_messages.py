"""The messages of smg's vLLM protocol: a request is read, deltas become answers."""

from __future__ import annotations

from collections.abc import Iterator

from frontend_svc.api.grpc.call import Context, trace_of
from frontend_svc.api.grpc.request import MAX_CHOICES, refuse_unknown_fields
from frontend_svc.api.vllm.call import matched_token, read_form, refuse_unserved
from frontend_svc.requests.events import Delta, Finished
from frontend_svc.requests.request import ClientRequest, FieldNames, Sampling, sampling_of
from frontend_svc.requests.sessions.session import Session
from signalbox.errors import InvalidRequestError, UnsupportedError
from signalbox.protocol.enums import FinishReason
from signalbox.protocol.sampling import TYPES, read_fields
from signalbox.vllm import engine_pb2 as engine

PARAMS = "sampling_params."
_SERVED = ("request_id", "tokenized", "text", "sampling_params", "stream", "data_parallel_rank")
_SERVED_PARAMS = TYPES.keys() - {"prompt_logprobs"} | {
    "skip_special_tokens", "spaces_between_special_tokens", "include_stop_str_in_output", "n",
    "grammar_from_first_token", "json_schema", "regex", "grammar", "structural_tag", "json_object", "choice",
}  # fmt: skip
"""The protocol has no answer for log-probabilities of a prompt."""
_REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.ABORT: "abort",
    FinishReason.DEAD_END: "abort",  # routers know no other word
}


def read_request(request: engine.GenerateRequest, context: Context) -> tuple[ClientRequest, int]:
    """What smg asks and for how many choices, unchecked but for what this face alone can see."""
    refuse(request)
    kind = request.WhichOneof("input")
    if kind is None:
        raise InvalidRequestError("one of tokenized and text must be given", field="input")
    read = ClientRequest(
        clamp_max_tokens=True,
        use_model_defaults=False,
        prompt=request.text if kind == "text" else list(request.tokenized.input_ids),
        sampling=_read_sampling(request.sampling_params),
        names=FieldNames(prompt="text" if kind == "text" else "tokenized.input_ids", sampling_prefix=PARAMS),
        request_id=request.request_id,
        trace=trace_of(context),
    )
    return read, request.sampling_params.n or 1


def refuse(request: engine.GenerateRequest) -> None:
    """Raises UnsupportedError for what the request asks and we do not serve."""
    refuse_unserved(request, _SERVED)
    refuse_unserved(request.sampling_params, _SERVED_PARAMS, PARAMS)
    refuse_unknown_fields(request)
    if request.data_parallel_rank:
        raise UnsupportedError("data_parallel_rank must be 0: there is one rank", field="data_parallel_rank")
    if request.sampling_params.n > MAX_CHOICES:
        raise InvalidRequestError(f"{PARAMS}n must be at most {MAX_CHOICES}", field=f"{PARAMS}n")


def _read_sampling(params: engine.SamplingParams) -> Sampling:
    return sampling_of(read_fields(params) | {"structured_output": read_form(params, "constraint", PARAMS)})


def make_responses(
    index: int, delta: Delta, session: Session, stream: bool
) -> Iterator[engine.GenerateResponse]:
    """The messages of one choice's delta. Without `stream` the delta is the whole output."""
    if stream:
        yield engine.GenerateResponse(chunk=_make_chunk(index, delta, session))
    if delta.finished is not None:
        yield engine.GenerateResponse(complete=_make_complete(index, delta, delta.finished, session))


def _make_chunk(index: int, delta: Delta, session: Session) -> engine.GenerateStreamChunk:
    return engine.GenerateStreamChunk(
        token_ids=delta.token_ids,
        prompt_tokens=session.request.num_prompt_tokens,
        completion_tokens=len(delta.token_ids),
        cached_tokens=session.num_cached_tokens,
        output_logprobs=_make_logprobs(delta),
        index=index,
    )


def _make_complete(index: int, delta: Delta, finished: Finished, session: Session) -> engine.GenerateComplete:
    complete = engine.GenerateComplete(
        output_ids=delta.token_ids,
        finish_reason=_REASONS[finished.reason],
        prompt_tokens=finished.num_prompt_tokens,
        completion_tokens=len(delta.token_ids),
        cached_tokens=finished.num_cached_tokens,
        output_logprobs=_make_logprobs(delta),
        index=index,
    )
    if finished.stop:
        complete.matched_stop_str = finished.stop
    elif finished.reason is FinishReason.STOP and (token := matched_token(session)) is not None:
        complete.matched_token_id = token
    return complete


def _make_logprobs(delta: Delta) -> engine.OutputLogProbs | None:
    logprobs = delta.logprobs
    if not logprobs:
        return None
    tops = [engine.TopLogProbs(values=item.top_logprobs, token_ids=item.top_token_ids) for item in logprobs]
    return engine.OutputLogProbs(
        token_logprobs=[item.logprob for item in logprobs],
        token_ids=delta.token_ids,
        top_logprobs=tops if any(item.top_token_ids for item in logprobs) else (),
    )
