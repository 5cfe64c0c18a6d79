"""A request as the client sees it: how it samples, what comes back, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import grpc

from signalbox.errors import CancelledError, InternalError, from_code
from signalbox.links.rpc_errors import error_of
from signalbox.protocol.sampling import SamplingFields
from signalbox.v1 import frontend_pb2, generation_pb2


class Sampling(SamplingFields, total=False):
    """How the next token is chosen and when to stop. What is left out has the server's default."""

    structured_output: Mapping[str, Any]
    """A form that the output has to follow, as in generation.proto: {"json_schema": "..."}, {"json_object": True},
    {"regex": "..."}, {"grammar": "..."} or {"choice": {"values": [...]}}. Default: none."""


class FinishReason(StrEnum):
    """How a request that did not fail ended; a failed or aborted one raises."""

    STOP = "stop"
    """A stop token, the end-of-sequence token or a stop string."""
    LENGTH = "length"
    """max_tokens, or the longest context that the model or the cache allows."""
    DEAD_END = "dead_end"
    """No token could come next: the form, with what other fields of the request forbid, left none. The output does not
    satisfy the form."""


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """The likeliest tokens at one output position."""

    logprob: float
    """Log-probability of the token that was chosen."""
    rank: int
    """Rank of the token that was chosen; 1 is the likeliest."""
    top: tuple[tuple[int, float], ...]
    """(token id, log-probability), best first."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a request ended, with its counts."""

    reason: FinishReason
    num_prompt_tokens: int
    num_output_tokens: int
    """Output tokens that count, up to and including the one that completed a stop string."""
    num_cached_tokens: int
    """Prompt tokens that the prefix cache saved computing."""
    stop: str
    """The stop string that was found; empty: none."""
    dead_end: str = ""
    """Why no token could come next, when the reason is DEAD_END."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What is new since the last one."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    """One per token of token_ids when asked for; else empty."""
    finished: Finished | None
    """Set in the last delta of each choice, and only there."""
    index: int = 0
    """Index of the choice that this is about."""
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """Log-probabilities of the prompt, in a delta of choice 0 ahead of its output: one per prompt token but the first.
    Empty: not asked for."""


@dataclass(frozen=True, slots=True)
class Result:
    """The whole output of a request."""

    request_id: str
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...]
    finished: Finished
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    """Log-probabilities of the prompt, from the first choice: one per prompt token but the first. Empty: not asked
    for."""


class Generation(AsyncIterator[Delta]):
    """A running request: an iterator over the deltas of all its choices. `request_id` is known from the first delta
    on."""

    def __init__(self, call: Any, address: str, num_choices: int = 1) -> None:
        self.request_id = ""
        self._call = call
        self._responses = aiter(call)
        self._address = address
        self._cancelled = False
        self._num_unfinished = num_choices
        self._deltas: list[Delta] = []

    async def __anext__(self) -> Delta:
        while True:
            response = await self._read()
            if response.HasField("accepted"):
                self.request_id = response.accepted.request_id
            has_output = response.text or response.token_ids or response.prompt_logprobs
            if has_output or response.HasField("finished"):
                break
        self._num_unfinished -= response.HasField("finished")
        delta = Delta(
            text=response.text,
            token_ids=tuple(response.token_ids),
            logprobs=tuple(map(_logprobs_of, response.logprobs)),
            finished=_finished_of(response.finished) if response.HasField("finished") else None,
            index=response.index,
            prompt_logprobs=tuple(map(_logprobs_of, response.prompt_logprobs)),
        )
        self._deltas.append(delta)
        return delta

    async def result(self) -> Result:
        """Waits for the end and returns the whole output of the first choice, deltas that were iterated before
        included."""
        return (await self.results())[0]

    async def results(self) -> list[Result]:
        """Waits for the end and returns the whole output of each choice."""
        async for _ in self:
            pass
        count = 1 + max(delta.index for delta in self._deltas)
        return [self._result([delta for delta in self._deltas if delta.index == i]) for i in range(count)]

    def _result(self, deltas: Sequence[Delta]) -> Result:
        finished = deltas[-1].finished
        assert finished is not None
        return Result(
            request_id=self.request_id,
            text="".join(delta.text for delta in deltas),
            token_ids=tuple(token for delta in deltas for token in delta.token_ids),
            logprobs=tuple(item for delta in deltas for item in delta.logprobs),
            finished=finished,
            prompt_logprobs=tuple(item for delta in deltas for item in delta.prompt_logprobs),
        )

    def cancel(self) -> None:
        """Ends the request at the server; whoever iterates gets CancelledError."""
        self._cancelled = True
        self._call.cancel()

    async def _read(self) -> frontend_pb2.GenerateResponse:
        try:
            response = await anext(self._responses)
        except StopAsyncIteration:
            if not self._num_unfinished:
                raise
            raise InternalError(f"{self._address} closed the stream before the request ended") from None
        except grpc.aio.AioRpcError as error:
            raise error_of(error, self._address) from None
        except asyncio.CancelledError:
            if self._cancelled:
                raise CancelledError("the request was cancelled by this client") from None
            raise
        assert isinstance(response, frontend_pb2.GenerateResponse)
        return response


_REASONS = {
    generation_pb2.FINISH_REASON_STOP: FinishReason.STOP,
    generation_pb2.FINISH_REASON_LENGTH: FinishReason.LENGTH,
    generation_pb2.FINISH_REASON_DEAD_END: FinishReason.DEAD_END,
}


def _finished_of(message: frontend_pb2.Finished) -> Finished:
    """Raises what made the request fail."""
    if message.HasField("error"):
        raise from_code(message.error.code, message.error.message, message.error.field)
    if message.reason == generation_pb2.FINISH_REASON_ABORT:
        raise CancelledError("the server aborted the request")
    if message.reason not in _REASONS:
        raise InternalError(f"the request ended for a reason unknown to this client ({message.reason})")
    return Finished(
        reason=_REASONS[message.reason],
        num_prompt_tokens=message.num_prompt_tokens,
        num_output_tokens=message.num_output_tokens,
        num_cached_tokens=message.num_cached_tokens,
        stop=message.stop,
        dead_end=message.dead_end,
    )


def _logprobs_of(message: generation_pb2.TokenLogprobs) -> TokenLogprobs:
    top = tuple(zip(message.top_token_ids, message.top_logprobs, strict=True))
    return TokenLogprobs(message.logprob, message.rank, top)
