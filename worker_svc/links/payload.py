"""What only the worker reads of a request: checked, and made ready for the core."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from signalbox.grammar.form import Form, FormKind
from signalbox.protocol.enums import ModelTask, RequestKind
from signalbox.protocol.sampling import LOGIT_BIAS, MAX_LOGPROB_TOKEN_IDS, RANGES
from signalbox.v1 import from_frontend_pb2, generation_pb2, to_worker_pb2
from worker_svc.core.batch import RunnerInfo
from worker_svc.core.requests.pooling import (
    LABEL_TASKS,
    MAX_RESULT_BYTES,
    TOKEN_TASKS,
    PoolingMode,
    PoolingParams,
)
from worker_svc.core.requests.reasoning import ReasoningBudget
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.core.step import Failure


def is_pooling(message: to_worker_pb2.NewRequestData) -> bool:
    """The request asks for a vector. An unset kind generates."""
    return message.kind == generation_pb2.REQUEST_KIND_POOLING


def refusal(
    message: to_worker_pb2.NewRequestData,
    payload: generation_pb2.RequestPayload,
    token_ids: NDArray[np.int32],
    info: RunnerInfo,
) -> Failure | None:
    """Why this worker cannot run the request. Frontends check first; this guards the worker against all others."""
    if len(token_ids) != message.num_known_tokens or payload.num_prior_output_tokens >= len(token_ids):
        announced = f"{message.num_known_tokens} were announced"
        return Failure(
            "InvalidRequestError", f"the prompt has {len(token_ids)} tokens, {announced}", "prompt"
        )
    longest = info.max_model_len - (not is_pooling(message))
    if len(token_ids) > longest:
        return Failure(
            "InvalidRequestError", f"the prompt has {len(token_ids)} tokens, at most {longest} fit", "prompt"
        )
    if int(token_ids.min()) < 0 or int(token_ids.max()) >= info.vocab_size:
        return Failure(
            "InvalidRequestError", f"a token id is outside of 0 to {info.vocab_size - 1}", "prompt"
        )
    if payload.adapter:
        return Failure("UnsupportedError", "this worker has no adapters", "adapter")
    if has_form(payload) != announces_grammar(message):
        said, sent = ("a", "none") if announces_grammar(message) else ("no", "one")
        text = f"{said} structured_output was announced, and {sent} came"
        return Failure("InvalidRequestError", text, "structured_output")
    if is_pooling(message):
        return _pooling_refusal(payload, len(token_ids), info)
    return _sampling_refusal(payload, info) or _budget_refusal(payload, info)


def _budget_refusal(payload: generation_pb2.RequestPayload, info: RunnerInfo) -> Failure | None:
    if not payload.HasField("reasoning_budget"):
        return None
    budget = payload.reasoning_budget
    if not (budget.begin_token_ids and budget.end_token_ids):
        return Failure("InvalidRequestError", "reasoning_budget has no tags", "reasoning_budget")
    tokens = (*budget.begin_token_ids, *budget.end_token_ids, *budget.then_token_ids)
    if max(tokens) >= info.vocab_size:
        message = f"a tag of reasoning has a token id outside of 0 to {info.vocab_size - 1}"
        return Failure("InvalidRequestError", message, "reasoning_budget")
    return None


def _pooling_refusal(
    payload: generation_pb2.RequestPayload, num_tokens: int, info: RunnerInfo
) -> Failure | None:
    if RequestKind.POOLING not in info.kinds:
        return Failure("UnsupportedError", "this worker does not run pooling requests", "kind")
    if payload.num_prior_output_tokens:
        return Failure("InvalidRequestError", "a pooling request has no output tokens", "prompt")
    if has_form(payload):
        message = "a pooling request has no output that could follow a form"
        return Failure("InvalidRequestError", message, "structured_output")
    if payload.pooling.mode not in (0, *PoolingMode):
        message = f"there is no pooling mode {payload.pooling.mode}"
        return Failure("InvalidRequestError", message, "pooling.mode")
    task = task_of(payload)
    if task not in info.tasks:
        served = ", ".join(each.name.lower() for each in info.tasks)
        return Failure("UnsupportedError", f"this worker does not serve the task; it serves {served}", "task")
    if payload.pooling.num_first_tokens > num_tokens:
        message = "the first part has more tokens than the prompt"
        return Failure("InvalidRequestError", message, "pooling.num_first_tokens")
    return _width_refusal(payload, num_tokens, info)


def _width_refusal(
    payload: generation_pb2.RequestPayload, num_tokens: int, info: RunnerInfo
) -> Failure | None:
    """What is wrong with the size of the result."""
    task, dimensions = task_of(payload), payload.pooling.dimensions
    if task in LABEL_TASKS and dimensions:
        return Failure("InvalidRequestError", "numbers of labels have no dimensions", "pooling.dimensions")
    if dimensions > info.embedding_size:
        message = f"a vector of the model has {info.embedding_size} dimensions, got {dimensions}"
        return Failure("InvalidRequestError", message, "pooling.dimensions")
    width = info.num_labels if task in LABEL_TASKS else dimensions or info.embedding_size
    most = MAX_RESULT_BYTES // (4 * max(width, 1))
    if task in TOKEN_TASKS and num_tokens > most:
        message = f"the prompt has {num_tokens} tokens; a row can be returned for each of {most} at most"
        return Failure("InvalidRequestError", message, "prompt")
    return None


def _sampling_refusal(payload: generation_pb2.RequestPayload, info: RunnerInfo) -> Failure | None:
    if payload.HasField("pooling"):
        return Failure("InvalidRequestError", "only a pooling request has pooling parameters", "pooling")
    if has_form(payload) and not payload.sampling.structured_output.WhichOneof("form"):
        return Failure("InvalidRequestError", "structured_output has no form", "structured_output")
    for sequence in payload.bad_token_sequences:
        if not sequence.token_ids or max(sequence.token_ids) >= info.vocab_size:
            message = f"a bad word is empty or has a token id outside of 0 to {info.vocab_size - 1}"
            return Failure("InvalidRequestError", message, "bad_words")
    for field, value in payload.sampling.ListFields():
        if field.name in RANGES and value not in RANGES[field.name]:
            message = f"{field.name} must be {RANGES[field.name]}, got {value}"
            return Failure("InvalidRequestError", message, field.name)
    if not all(bias in LOGIT_BIAS for bias in payload.sampling.logit_bias.values()):
        return Failure("InvalidRequestError", f"logit_bias must be {LOGIT_BIAS}", "logit_bias")
    for name in ("allowed_token_ids", "logprob_token_ids"):
        if max(getattr(payload.sampling, name), default=0) >= info.vocab_size:
            message = f"{name} has a token id outside of 0 to {info.vocab_size - 1}"
            return Failure("InvalidRequestError", message, name)
    if len(payload.sampling.logprob_token_ids) > MAX_LOGPROB_TOKEN_IDS:
        message = f"logprob_token_ids has more than {MAX_LOGPROB_TOKEN_IDS} ids"
        return Failure("InvalidRequestError", message, "logprob_token_ids")
    if payload.sampling.HasField("logprobs") and not info.has_logprobs:
        return Failure("UnsupportedError", "this worker gives no logprobs", "logprobs")
    if payload.sampling.HasField("prompt_logprobs") and not info.has_prompt_logprobs:
        return Failure("UnsupportedError", "this worker gives no prompt logprobs", "prompt_logprobs")
    return None


def without_tokens(payload: generation_pb2.RequestPayload) -> bytes:
    """A payload that says only how tokens are chosen, serialized."""
    rest = generation_pb2.RequestPayload()
    rest.CopyFrom(payload)
    rest.ClearField("token_ids")
    rest.ClearField("num_prior_output_tokens")
    return rest.SerializeToString()


def announces_grammar(message: to_worker_pb2.NewRequestData) -> bool:
    """The scheduler runs no step of the request before it hears that its grammar is ready."""
    return from_frontend_pb2.RequestMeta.FromString(message.scheduler_meta).has_grammar


def has_form(payload: generation_pb2.RequestPayload) -> bool:
    """The output has to follow a form."""
    return payload.sampling.HasField("structured_output")


def parse_form(payload: generation_pb2.RequestPayload) -> Form | None:
    """What the output has to follow; None: nothing."""
    if not has_form(payload):
        return None
    output = payload.sampling.structured_output
    kind = FormKind(output.WhichOneof("form"))
    if kind == FormKind.CHOICE:
        return Form(kind, choices=tuple(output.choice.values))
    return Form(kind) if kind == FormKind.JSON_OBJECT else Form(kind, getattr(output, kind.value))


def parse_reasoning(payload: generation_pb2.RequestPayload) -> ReasoningBudget | None:
    """How long the output may reason; None: as long as it likes."""
    if not payload.HasField("reasoning_budget"):
        return None
    budget = payload.reasoning_budget
    return ReasoningBudget(
        max_tokens=budget.max_tokens,
        is_open=budget.is_open,
        begin=tuple(budget.begin_token_ids),
        end=tuple(budget.end_token_ids),
        then=frozenset(budget.then_token_ids),
    )


def parse_pooling(payload: generation_pb2.RequestPayload, info: RunnerInfo) -> PoolingParams:
    """How the vector is made; unset fields as the model has them."""
    pooling = payload.pooling
    task = task_of(payload)
    # A head was trained for one way of pooling.
    is_open = pooling.mode and task not in LABEL_TASKS
    mode = PoolingMode(pooling.mode) if is_open else info.pooling_mode
    return PoolingParams(
        mode,
        is_raw=pooling.raw,
        dimensions=pooling.dimensions,
        task=ModelTask(task),
        activation=info.score_activation if task == ModelTask.SCORE else info.label_activation,
        is_whole=info.reads_both_ways,
        num_first_tokens=pooling.num_first_tokens,
    )


def task_of(payload: generation_pb2.RequestPayload) -> int:
    """What a pooling request asks for: a `ModelTask`, or a number that is none."""
    number = payload.pooling.task or ModelTask.EMBED
    return ModelTask(number) if number in _POOLING_TASKS else number


def parse_sampling(payload: generation_pb2.RequestPayload, info: RunnerInfo) -> SamplingParams:
    """How tokens are chosen, with all defaults filled in."""
    sampling = payload.sampling
    numbers: dict[str, Any] = {
        each.name: value for each, value in sampling.ListFields() if each.name in _SAME_NAMES
    }
    stops = set(sampling.stop_token_ids) | (set() if sampling.ignore_eos else set(info.eos_token_ids))
    params = SamplingParams(
        **numbers,
        choice_index=payload.choice_index,
        stop_token_ids=frozenset(stops),
        num_logprobs=sampling.logprobs if sampling.HasField("logprobs") else None,
        logit_bias=dict(sampling.logit_bias),
        bad_token_sequences=tuple(tuple(sequence.token_ids) for sequence in payload.bad_token_sequences),
        num_prompt_logprobs=sampling.prompt_logprobs if sampling.HasField("prompt_logprobs") else None,
        allowed_token_ids=tuple(sorted(set(sampling.allowed_token_ids))),
        logprob_token_ids=tuple(sampling.logprob_token_ids),
    )
    # All there are is all: larger numbers mean the same and do not fit the columns of the table.
    top_k, min_tokens = min(params.top_k, info.vocab_size), min(params.min_tokens, info.max_model_len)
    return replace(params, top_k=top_k, min_tokens=min_tokens)


_POOLING_TASKS = frozenset(ModelTask) - {ModelTask.GENERATE}
_SAME_NAMES = RANGES.keys() & {field.name for field in fields(SamplingParams)}
"""Numbers that are taken as they come."""
