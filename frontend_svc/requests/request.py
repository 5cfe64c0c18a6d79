"""A request on its way in: as a client sent it, and as it was understood."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from frontend_svc.text.parsing.budget import ReasoningBudget
from frontend_svc.text.parsing.language import ParserPlan
from signalbox.grammar.form import FormKind
from signalbox.protocol.enums import ModelTask
from signalbox.protocol.sampling import SamplingFields
from signalbox.telemetry.attributes import OPERATION_TEXT_COMPLETION


@dataclass(frozen=True)
class Trace:
    """W3C trace context of the client's call, passed through."""

    traceparent: str = ""
    tracestate: str = ""


_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_MAX_TRACESTATE_CHARS = 512


def read_trace(traceparent: str, tracestate: str) -> Trace:
    """The trace context of a call's headers; what is none is dropped, as the W3C's rules want it."""
    if not _TRACEPARENT.fullmatch(traceparent):
        return Trace()
    return Trace(traceparent, tracestate if len(tracestate) <= _MAX_TRACESTATE_CHARS else "")


FREE_FORMS = (FormKind.REGEX, FormKind.GRAMMAR)
"""What says more than which JSON, or which of some strings, is wanted; keys may be without it (AK10)."""


@dataclass(frozen=True)
class StructuredOutput:
    """A form that the output has to follow."""

    form: FormKind
    text: str = ""
    """The schema or tag as JSON, the regular expression, or the grammar; empty for the other forms."""
    choices: tuple[str, ...] = ()
    """The strings of which one has to be the output, for the form CHOICE."""
    field: str = "structured_output"
    """How this face calls it, for errors."""
    is_free: bool = False
    """The client has sent a regular expression or a grammar, whatever has been made of it since."""
    inner: StructuredOutput | None = None
    """The client's own form, where this one has more in front of it or beside it; None: it is this one."""
    needs_inner: bool = True
    """Every output has to come to `inner`."""


class PoolingMode(StrEnum):
    """How one vector is made of hidden states; named as in generation.proto."""

    MEAN = "mean"
    LAST = "last"
    CLS = "cls"


@dataclass(frozen=True)
class Pooling:
    """Asks for something of the prompt itself instead of output tokens: a vector, numbers of labels, a score."""

    mode: PoolingMode | None = None
    """How the vector is made; None: in the model's own way."""
    raw: bool = False
    """Do not scale vectors to length 1, nor put numbers of labels through the head's activation."""
    dimensions: int = 0
    """Keep the first so many of a vector; 0: all."""
    task: ModelTask = ModelTask.EMBED
    num_first_tokens: int = 0
    """Tokens of the first part of a pair; 0: the parts are not told apart."""


class Sampling(SamplingFields, total=False):
    """How to choose tokens and when to stop, as the client asked. Read once; nobody writes to it."""

    structured_output: StructuredOutput
    """Left out: the output is free."""


def sampling_of(fields: Mapping[str, Any]) -> Sampling:
    """Sampling parameters of fields by name, but for those that are None."""
    return cast(Sampling, {name: value for name, value in fields.items() if value is not None})


@dataclass(frozen=True)
class FieldNames:
    """How a face calls the fields of its requests, for errors."""

    prompt: str = "prompt"
    sampling_prefix: str = ""
    """Path to the sampling parameters: "sampling." or empty."""
    max_tokens: str = "max_tokens"
    request_id: str = "request_id"
    priority: str = "priority"


@dataclass(frozen=True)
class ClientRequest:
    """One prompt of a client's call, before any check. `prompt` is text, or token ids."""

    prompt: str | Sequence[int]
    sampling: Sampling
    model: str = ""
    """Empty: the only one served."""
    names: FieldNames = FieldNames()
    default_max_tokens: int | None = None
    """The limit where `sampling` names none; None: the model's own default, else all that fit the context."""
    clamp_max_tokens: bool = False
    """More output tokens than fit behind the prompt are cut to those that do, and not refused."""
    use_model_defaults: bool = True
    """What `sampling` leaves out has the defaults that the model brings."""
    turn_end: int | None = None
    """Token that ends the assistant's turn in the chat template; None: not known, or no chat."""
    keep_stop: bool = False
    """The stop string or the token that ended the output stays in the text."""
    with_special_tokens: bool = False
    """Special tokens are text."""
    truncate_prompt_tokens: int | None = None
    """Keep the last so many tokens of the prompt; -1: as many as fit the context with the output. None: all."""
    truncate_right: bool = False
    """Keep the first so many tokens instead."""
    add_special_tokens: bool = True
    """Whether the tokenizer puts its own tokens around the text; a chat template has put them already."""
    request_id: str = ""
    """The client's own name for it; empty: we make one."""
    id_prefix: str = ""
    """What begins a name that we make."""
    priority: int = 0
    """Lower runs first; 0: the client named none. `AccessControl` makes it what the caller may have."""
    tenant: str = ""
    key_id: str = ""
    """Names the caller's key in logs and counts; empty: there is none."""
    cache_tenant: str = ""
    """The tenant who alone may use the blocks again; empty: anybody may."""
    cache_salt: str = ""
    trace: Trace = Trace()
    operation: str = OPERATION_TEXT_COMPLETION
    """What telemetry calls the operation."""
    pooling: Pooling | None = None
    """Asks for a vector or the like; `sampling` is then the default. None: asks for output tokens."""
    pair: str | None = None
    """Second part of a pooling request's prompt, whose first part is text. None: there is one part."""
    max_pair_tokens: int | None = None
    """Tokens that are kept of it; None: all."""
    parsing: ParserPlan | None = None
    """How its outputs are read; None: they are text."""
    reasoning: ReasoningBudget | None = None
    """Bounds what is written between tags of reasoning; None: nothing does."""


@dataclass(frozen=True)
class CheckedRequest:
    """A request that was checked and completed: it can be submitted, and again after a loss."""

    request_id: str
    model: str
    prompt: bytes
    """Prompt token ids, int32 little endian."""
    num_prompt_tokens: int
    max_tokens: int
    """Most output tokens to make; fits the context."""
    seed: int
    sampling: Sampling
    priority: int = 0
    tenant: str = ""
    key_id: str = ""
    """Names the caller's key in logs and counts; empty: there is none."""
    cache_salt: str = ""
    trace: Trace = Trace()
    """Trace context for the scheduler and the worker; empty: not traced."""
    operation: str = OPERATION_TEXT_COMPLETION
    """What telemetry calls the operation."""
    choice_index: int = 0
    """Which choice of its client's call this is; keys its random numbers beside the seed."""
    turn_end: int | None = None
    """A stop token beside those of `sampling`, unless these ignore the end of the sequence; None: there is none."""
    bad_token_sequences: tuple[tuple[int, ...], ...] = ()
    """Token sequences that must not appear, made of `sampling.bad_words`."""
    pooling: Pooling | None = None
    """How the vector is made; None: output tokens are made."""
    reasoning: ReasoningBudget | None = None
    """Bounds what is written between tags of reasoning; None: nothing does."""
    names: FieldNames = FieldNames()
