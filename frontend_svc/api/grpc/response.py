"""Messages of the gRPC face."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from frontend_svc.requests.choices import Choices
from frontend_svc.requests.events import Delta, Finished, read_vector
from signalbox.errors import SignalboxError, code_of
from signalbox.v1 import frontend_pb2 as frontend
from signalbox.v1 import generation_pb2 as generation


def make_accepted(choices: Choices) -> frontend.GenerateResponse:
    """The first message of a stream: the request's id and how many tokens its prompt has."""
    request = choices.sessions[0].request
    accepted = frontend.Accepted(request_id=request.request_id, num_prompt_tokens=request.num_prompt_tokens)
    return frontend.GenerateResponse(accepted=accepted)


def make_responses(index: int, delta: Delta) -> Iterator[frontend.GenerateResponse]:
    """The messages of one choice's delta; log-probabilities of the prompt go ahead of all output."""
    if delta.prompt_logprobs:
        logprobs: Any = delta.prompt_logprobs
        yield frontend.GenerateResponse(index=index, prompt_logprobs=logprobs)
    if delta.text or delta.token_ids or delta.finished is not None:
        yield _make_response(index, delta)


def make_embeddings(choices: Choices, outputs: Sequence[Delta]) -> frontend.EmbedResponse:
    """The message that answers Embed: one vector per input."""
    return frontend.EmbedResponse(
        embeddings=[frontend.Embedding(values=read_vector(delta.vector)) for delta in outputs],
        num_prompt_tokens=choices.num_prompt_tokens,
    )


def _make_response(index: int, delta: Delta) -> frontend.GenerateResponse:
    return frontend.GenerateResponse(
        text=delta.text,
        token_ids=delta.token_ids,
        logprobs=delta.logprobs,  # type: ignore[arg-type]  # they are the worker's own messages
        finished=None if delta.finished is None else _make_finished(delta.finished),
        index=index,
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
        dead_end=finished.dead_end,
    )


def _make_error(error: SignalboxError) -> generation.Error:
    return generation.Error(code=code_of(error), message=error.message, field=error.field)
