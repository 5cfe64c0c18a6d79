"""What a session tells its client: deltas, and the one terminal event."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from frontend_svc.text.parsing.events import Event
from signalbox.errors import SignalboxError
from signalbox.protocol.enums import FinishReason

DEAD_END = "dead_end"
"""What every face but gRPC calls the end of an output that no token could follow; no API that they come from has a
word for it."""


class TokenLogprobs(Protocol):
    """Log-probabilities at one output position; the message of generation.proto is one."""

    @property
    def logprob(self) -> float:
        """Log-probability of the chosen token."""

    @property
    def rank(self) -> int:
        """Rank of the chosen token; 1 is the likeliest."""

    @property
    def top_token_ids(self) -> Sequence[int]:
        """Ids of the likeliest tokens, best first."""

    @property
    def top_logprobs(self) -> Sequence[float]:
        """Log-probabilities of `top_token_ids`."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a request ended."""

    reason: FinishReason
    num_prompt_tokens: int
    num_output_tokens: int
    """Up to and including the token that completed a stop string."""
    num_cached_tokens: int
    stop: str = ""
    """The stop string that was found."""
    error: SignalboxError | None = None
    """Why, when the reason is ERROR or ABORT."""
    dead_end: str = ""
    """Why no token could come next, when the reason is DEAD_END."""


@dataclass(frozen=True, slots=True)
class Delta:
    """All that became certain since the last one."""

    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs]
    """One per token, or none at all."""
    finished: Finished | None
    prompt_logprobs: Sequence[TokenLogprobs] = ()
    """Log-probabilities of the prompt, all in or ahead of the first delta with tokens: one per prompt token but the
    first. Empty: not asked for."""
    vector: bytes = b""
    """The result of a pooling request, with `finished`: f32, little endian. Empty: it generates."""
    events: Sequence[Event] = ()
    """What an output that is parsed means, in order; `text` is the text in them. Empty: nothing is parsed."""
    num_reasoning_tokens: int = 0
    """How many of `token_ids` are reasoning."""
    reasoning_places: Sequence[int] = ()
    """Where in `token_ids` reasoning is, and the marks around it."""


def read_vector(values: bytes) -> list[float]:
    """The numbers of `Delta.vector` as floats."""
    return array("f", values).tolist()
