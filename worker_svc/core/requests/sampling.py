"""How each request chooses its tokens: parameters as columns, one row per slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from signalbox.grammar.token_rules import TokenRules

NO_LOGPROBS = 255


@dataclass(frozen=True)
class SamplingParams:
    """One request's parameters, validated and with all defaults filled in. Fields as in generation.proto."""

    temperature: float = 1.0
    top_k: int = 0
    """The likeliest tokens to draw from; 0 keeps all."""
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    choice_index: int = 0
    min_tokens: int = 0
    """Stop tokens cannot be sampled before this many output tokens."""
    stop_token_ids: frozenset[int] = frozenset()
    """Tokens that end the output; the end-of-sequence tokens are among them unless they are ignored."""
    num_logprobs: int | None = None
    """Alternatives to return per output token; None: no log-probabilities at all."""
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    bad_token_sequences: tuple[tuple[int, ...], ...] = ()
    """Sequences, of at least one token, that the output may not contain."""
    num_prompt_logprobs: int | None = None
    """Alternatives to return per prompt token; None: no log-probabilities of the prompt."""
    allowed_token_ids: tuple[int, ...] = ()
    """The output has no other tokens than these, ascending; empty: all."""
    logprob_token_ids: tuple[int, ...] = ()
    """Whose log-probabilities are returned per output token, in this order; empty: those of the likeliest."""

    @cached_property
    def allowed(self) -> NDArray[np.int64]:
        """[n] `allowed_token_ids`."""
        return np.array(self.allowed_token_ids, np.int64)

    @cached_property
    def rules(self) -> TokenRules:
        """What `allowed_token_ids` and `bad_token_sequences` leave to the output."""
        return TokenRules(self.allowed_token_ids, self.bad_token_sequences)

    @property
    def forbids(self) -> bool:
        """Some tokens may not come, at some places."""
        return bool(self.rules) or (self.min_tokens > 0 and bool(self.stop_token_ids))

    def forbidden(self, output: Sequence[int], place: int) -> set[int]:
        """Tokens that may not come as output token `place`, after `output`, beside those outside of
        `allowed_token_ids`."""
        return self.rules.forbidden(output, self.stop_token_ids if place < self.min_tokens else frozenset())

    @property
    def adjusts(self) -> bool:
        """The logits are to be adjusted: penalties, bias, tokens that may not come, or stop tokens held back by
        min_tokens."""
        return (
            self.forbids
            or self.repetition_penalty != 1.0
            or self.frequency_penalty != 0.0
            or self.presence_penalty != 0.0
            or bool(self.logit_bias)
        )


class SamplingTable:
    """The parameters of all slots, as columns for the sampler. Row `i` is meaningful while slot `i` is held."""

    def __init__(self, num_slots: int) -> None:
        self.temperature = np.ones(num_slots, np.float32)
        self.top_k = np.zeros(num_slots, np.int32)
        self.top_p = np.ones(num_slots, np.float32)
        self.min_p = np.zeros(num_slots, np.float32)
        self.seed = np.zeros(num_slots, np.uint64)
        self.choice_index = np.zeros(num_slots, np.uint32)
        self.min_tokens = np.zeros(num_slots, np.int32)
        self.num_logprobs = np.full(num_slots, NO_LOGPROBS, np.uint8)
        self.num_prompt_logprobs = np.full(num_slots, NO_LOGPROBS, np.uint8)
        self.adjusts = np.zeros(num_slots, np.bool_)
        """The row's parameters adjust its logits before a token is chosen."""
        self.follows_form = np.zeros(num_slots, np.bool_)
        """A mask says which tokens the row may become."""
        self.params: list[SamplingParams | None] = [None] * num_slots

    def set(self, slot: int, params: SamplingParams) -> None:
        """Fills the row of `slot`."""
        self.temperature[slot] = params.temperature
        self.top_k[slot] = params.top_k
        self.top_p[slot] = params.top_p
        self.min_p[slot] = params.min_p
        self.seed[slot] = params.seed
        self.choice_index[slot] = params.choice_index
        self.min_tokens[slot] = params.min_tokens
        self.num_logprobs[slot] = _or_none(params.num_logprobs)
        self.num_prompt_logprobs[slot] = _or_none(params.num_prompt_logprobs)
        self.adjusts[slot] = params.adjusts
        self.params[slot] = params

    def clear(self, slot: int) -> None:
        """Forgets the row of `slot`."""
        self.params[slot] = None
        self.adjusts[slot] = self.follows_form[slot] = False

    def top_k_of(self, slots: NDArray[np.int32], vocab_size: int) -> NDArray[np.int64]:
        """[n] between 1 and `vocab_size`, which keeps all tokens."""
        top_k = self.top_k[slots].astype(np.int64)
        return np.where((top_k <= 0) | (top_k > vocab_size), vocab_size, top_k)


def _or_none(count: int | None) -> int:
    return NO_LOGPROBS if count is None else count
