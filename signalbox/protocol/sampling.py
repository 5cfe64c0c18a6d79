"""The sampling parameters that a client may send: the one table of their names, types and ranges.

Fields are those of SamplingParams in generation.proto, which says what each means. From here follow the keyword
arguments of the client, the fields of OpenAI's bodies, what is read of a face's message, the checks of frontend and
worker, and what the frontend sends on. What a worker does with a field is in worker_svc/core/requests/sampling.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, TypedDict, get_origin, get_type_hints

from google.protobuf.message import Message

U32_MAX = 2**32 - 1
MAX_LOGPROBS = 20
MAX_LOGPROB_TOKEN_IDS = 128


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `low` to `high`."""

    low: float
    high: float
    has_low: bool = True
    """`low` itself is one of them."""

    def __contains__(self, value: float) -> bool:
        """A NaN is in no range."""
        return self.low <= value <= self.high and (self.has_low or value != self.low)

    def __str__(self) -> str:
        return f"{'from' if self.has_low else 'above'} {_in_words(self.low)} to {_in_words(self.high)}"


def _in_words(number: float) -> str:
    """Whole numbers with all their digits."""
    return str(number) if isinstance(number, int) else f"{number:g}"


LOGIT_BIAS = Range(-100, 100)
"""Range of the bias of one token's logit."""


class SamplingFields(TypedDict, total=False):
    """How the next token is chosen and when to stop. What is left out has the default."""

    max_tokens: Annotated[int, Range(1, U32_MAX)]
    """Most output tokens. Default: all that fit the context."""
    min_tokens: Annotated[int, Range(0, U32_MAX)]
    """No stop token before this many output tokens. Default: 0."""
    temperature: Annotated[float, Range(0, 100)]
    """0 is greedy; far below 100 there is nothing but noise. Default: 1."""
    top_k: Annotated[int, Range(0, U32_MAX)]
    """Keep only the k likeliest tokens; 0 keeps all. Default: 0."""
    top_p: Annotated[float, Range(0, 1, has_low=False)]
    """Keep the smallest set of tokens whose probabilities sum to at least p. Default: 1."""
    min_p: Annotated[float, Range(0, 1)]
    """Drop tokens less likely than min_p times the likeliest one. Default: 0."""
    seed: Annotated[int, Range(0, 2**64 - 1)]
    """Same seed, same output. Default: the server draws one."""
    stop: Sequence[str]
    """Strings that end the output; cut from the text."""
    stop_token_ids: Sequence[int]
    """Tokens that end the output."""
    ignore_eos: bool
    """Go on after the end-of-sequence token. Default: no."""
    logprobs: Annotated[int, Range(0, MAX_LOGPROBS)]
    """Return the log-probabilities of the chosen token and of the n likeliest. Default: none."""
    prompt_logprobs: Annotated[int, Range(0, MAX_LOGPROBS)]
    """Return the log-probabilities of the prompt tokens likewise. Default: none."""
    repetition_penalty: Annotated[float, Range(0, 100, has_low=False)]
    """Divide the logits of tokens seen in prompt or output; 1 is off. Default: 1."""
    frequency_penalty: Annotated[float, Range(-2, 2)]
    """Subtract per earlier use in the output. Default: 0."""
    presence_penalty: Annotated[float, Range(-2, 2)]
    """Subtract once if used in the output. Default: 0."""
    logit_bias: Mapping[int, float]
    """Added to the logits of these tokens, each in the range LOGIT_BIAS."""
    bad_words: Sequence[str]
    """Strings that the output must not contain at a token boundary."""
    allowed_token_ids: Sequence[int]
    """The output has no other tokens than these."""
    logprob_token_ids: Sequence[int]
    """Return the log-probabilities of these tokens, instead of those of the likeliest."""


TYPES: Mapping[str, Any] = get_type_hints(SamplingFields)
"""Types of the values, by field."""
RANGES: Mapping[str, Range] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(SamplingFields, include_extras=True).items()
    if hasattr(hint, "__metadata__")
}
"""Ranges of the fields that are numbers, by field."""
FRONTENDS_OWN = frozenset({"stop", "bad_words"})
"""Fields that no worker sees: what the frontend makes of them, or finds itself."""
WORKERS = TYPES.keys() - FRONTENDS_OWN


_MAKE: Mapping[str, Callable[[Any], Any]] = {
    name: {Sequence: tuple, Mapping: dict}.get(get_origin(kind), kind) for name, kind in TYPES.items()
}
"""What a message holds is copied: it is gone with the message."""


def read_fields(message: Message, renamed: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """The fields of ours that are set in `message`, under their own names or those that `renamed` translates. In a
    message that cannot tell 0 from unset, 0 is unset."""
    fields: dict[str, Any] = {}
    for field, value in message.ListFields():
        name = renamed.get(field.name, field.name)
        if name in TYPES:
            fields[name] = _MAKE[name](value)
    return fields
