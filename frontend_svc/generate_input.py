"""A request on its way in: as a client asked, and as it was understood."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from signalbox.attributes import OPERATION_TEXT_COMPLETION


@dataclass(frozen=True)
class Trace:
    """W3C trace context of the client's call, passed through."""

    traceparent: str = ""
    tracestate: str = ""


_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_MAX_TRACESTATE_CHARS = 512


def read_trace(traceparent: str, tracestate: str) -> Trace:
    """Of a call's headers; what is no trace context is dropped, as the W3C's rules want it."""
    if not _TRACEPARENT.fullmatch(traceparent):
        return Trace()
    return Trace(traceparent, tracestate if len(tracestate) <= _MAX_TRACESTATE_CHARS else "")


@dataclass(frozen=True)
class Sampling:
    """How to choose tokens and when to stop, as asked; None means the default of generation.proto."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    stop_token_ids: Sequence[int] = ()
    stop: Sequence[str] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    """Alternatives per output token; None: no log-probabilities."""
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """What a client asked for, before any check. `prompt` is text, or token ids."""

    prompt: str | Sequence[int]
    sampling: Sampling
    model: str = ""
    """Empty: the only one served."""
    prompt_field: str = "prompt"
    """How this face calls the prompt, for errors."""
    sampling_prefix: str = ""
    """Path to the sampling parameters on this face, for errors: "sampling." or empty."""
    max_tokens_field: str = "max_tokens"
    default_max_tokens: int | None = None
    """When sampling.max_tokens is None; None: all that fit the context."""
    add_special_tokens: bool = True
    """Whether the tokenizer puts its own tokens around the text; a chat template has put them already."""
    request_id: str = ""
    """The client's own name for it; empty: we make one."""
    id_prefix: str = ""
    """Of a name that we make."""
    priority: int = 0
    cache_salt: str = ""
    deadline_ms: int = 0
    """Unix time in milliseconds; 0: none."""
    trace: Trace = Trace()
    operation: str = OPERATION_TEXT_COMPLETION
    """What telemetry calls it."""


@dataclass(frozen=True)
class GenerateInput:
    """A request that was checked and can be submitted, once or again after a loss."""

    request_id: str
    model: str
    prompt: bytes
    """Prompt token ids, int32 little endian."""
    num_prompt_tokens: int
    max_tokens: int
    """Fits the context."""
    seed: int
    sampling: Sampling
    priority: int = 0
    cache_salt: str = ""
    deadline_ms: int = 0
    arrival_ms: int = 0
    """Unix time in milliseconds."""
    trace: Trace = Trace()
    """For the scheduler and the worker; empty: not traced."""
    operation: str = OPERATION_TEXT_COMPLETION
    """What telemetry calls it."""
