"""Requests as they come over the wire: what a runner cannot do is refused by name, and the rest arrives whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from signalbox.grammar.form import Form, FormKind
from signalbox.protocol.enums import ModelTask
from signalbox.protocol.sampling import WORKERS
from signalbox.v1 import from_frontend_pb2, generation_pb2, to_worker_pb2
from tests.sampling_examples import examples
from worker_svc.core.batch import RunnerInfo
from worker_svc.core.requests.pooling import PoolingMode, PoolingParams
from worker_svc.core.requests.request_state import RequestTable
from worker_svc.links.delta import parse_new_request

POOLING = generation_pb2.REQUEST_KIND_POOLING
SIM = RunnerInfo("sim", num_blocks=8, block_size=4, max_model_len=64, vocab_size=100, eos_token_ids=(2,))
FULL = replace(
    SIM,
    tasks=(ModelTask.GENERATE, ModelTask.EMBED),
    has_prompt_logprobs=True,
    embedding_size=16,
    pooling_mode=PoolingMode.MEAN,
)


FORM = {"structured_output": {"regex": "a+"}}


def message(
    kind: int = 0, prior: int = 0, has_grammar: bool = False, **payload: Any
) -> to_worker_pb2.NewRequestData:
    tokens = np.array([5, 6, 7], "<i4").tobytes()
    body = generation_pb2.RequestPayload(token_ids=tokens, num_prior_output_tokens=prior, **payload)
    return to_worker_pb2.NewRequestData(
        kind=kind,  # type: ignore[arg-type]
        num_known_tokens=3,
        max_tokens=4,
        payload=body.SerializeToString(),
        scheduler_meta=from_frontend_pb2.RequestMeta(has_grammar=has_grammar).SerializeToString(),
    )


def bad_words(*sequences: list[int]) -> list[generation_pb2.TokenSequence]:
    return [generation_pb2.TokenSequence(token_ids=sequence) for sequence in sequences]


@pytest.mark.parametrize(
    ("given", "info", "code", "field"),
    [
        (message(kind=POOLING), SIM, "UnsupportedError", "kind"),
        (message(sampling={"prompt_logprobs": 0}), SIM, "UnsupportedError", "prompt_logprobs"),
        (message(sampling={"prompt_logprobs": 21}), FULL, "InvalidRequestError", "prompt_logprobs"),
        (message(sampling={"logprobs": 300}), FULL, "InvalidRequestError", "logprobs"),
        (message(sampling={"temperature": -1.0}), FULL, "InvalidRequestError", "temperature"),
        (message(sampling={"temperature": float("nan")}), FULL, "InvalidRequestError", "temperature"),
        (message(sampling={"top_p": 1.5}), FULL, "InvalidRequestError", "top_p"),
        (message(sampling={"min_p": -0.1}), FULL, "InvalidRequestError", "min_p"),
        (message(bad_token_sequences=bad_words([5, 100])), FULL, "InvalidRequestError", "bad_words"),
        (message(sampling={"allowed_token_ids": [100]}), FULL, "InvalidRequestError", "allowed_token_ids"),
        (message(sampling={"logprob_token_ids": [100]}), FULL, "InvalidRequestError", "logprob_token_ids"),
        (
            message(sampling={"logprob_token_ids": [1] * 129}),
            FULL,
            "InvalidRequestError",
            "logprob_token_ids",
        ),
        (message(bad_token_sequences=bad_words([5], [])), FULL, "InvalidRequestError", "bad_words"),
        (message(pooling={"mode": 1}), FULL, "InvalidRequestError", "pooling"),
        (message(kind=POOLING, prior=1), FULL, "InvalidRequestError", "prompt"),
        (message(kind=POOLING, pooling={"mode": 9}), FULL, "InvalidRequestError", "pooling.mode"),
        (
            message(kind=POOLING, pooling={"dimensions": 17}),
            FULL,
            "InvalidRequestError",
            "pooling.dimensions",
        ),
        (message(kind=POOLING, adapter="a"), FULL, "UnsupportedError", "adapter"),
        (message(has_grammar=True), FULL, "InvalidRequestError", "structured_output"),
        (message(sampling=FORM), FULL, "InvalidRequestError", "structured_output"),
        (message(kind=POOLING, has_grammar=True), FULL, "InvalidRequestError", "structured_output"),
        (
            message(kind=POOLING, has_grammar=True, sampling=FORM),
            FULL,
            "InvalidRequestError",
            "structured_output",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    given: to_worker_pb2.NewRequestData, info: RunnerInfo, code: str, field: str
) -> None:
    request = parse_new_request(given, info)
    assert request.failure is not None
    assert (request.failure.code, request.failure.field) == (code, field)
    assert (request.pooling is not None) == (given.kind == POOLING), (
        "its kind decides what follows its prefill"
    )
    meta = from_frontend_pb2.RequestMeta.FromString(given.scheduler_meta)
    assert request.tells_early == meta.has_grammar, "a scheduler that waits for a grammar runs no step of it"


def test_a_form_that_was_announced_arrives() -> None:
    request = parse_new_request(message(has_grammar=True, sampling=FORM), FULL)
    assert request.failure is None and request.form == Form(FormKind.REGEX, "a+")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (message(kind=POOLING), PoolingParams(PoolingMode.MEAN)),
        (
            message(kind=POOLING, pooling={"mode": 3, "raw": True, "dimensions": 16}),
            PoolingParams(PoolingMode.CLS, is_raw=True, dimensions=16),
        ),
    ],
)
def test_pooling_parameters_default_to_the_models_own(
    given: to_worker_pb2.NewRequestData, expected: PoolingParams
) -> None:
    request = parse_new_request(given, FULL)
    assert request.failure is None and request.pooling == expected


def test_sampling_parameters_arrive() -> None:
    given = message(
        sampling={"prompt_logprobs": 0}, bad_token_sequences=bad_words([5], [6, 7]), choice_index=3
    )
    request = parse_new_request(given, FULL)
    assert request.failure is None and request.pooling is None
    assert request.sampling.bad_token_sequences == ((5,), (6, 7))
    assert (request.sampling.num_prompt_logprobs, request.sampling.num_logprobs) == (0, None)
    assert request.sampling.choice_index == 3
    assert parse_new_request(message(), FULL).sampling.num_prompt_logprobs is None


def test_every_sampling_parameter_arrives() -> None:
    """None of those sent is a default; a copy that is forgotten shows here."""
    sent = {name: value for name, value in examples().items() if name in WORKERS}
    params = parse_new_request(message(sampling=sent), FULL).sampling
    assert (params.num_logprobs, params.num_prompt_logprobs) == (sent["logprobs"], sent["prompt_logprobs"])
    assert params.stop_token_ids == set(sent["stop_token_ids"])
    elsewhere = {"max_tokens", "logprobs", "prompt_logprobs", "stop_token_ids", "ignore_eos"}
    lists = {name: tuple(value) for name, value in sent.items() if isinstance(value, list)}
    assert {name: getattr(params, name) for name in sent.keys() - elsewhere} == {
        name: value for name, value in (sent | lists).items() if name not in elsewhere
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -3.0])
@pytest.mark.parametrize(
    "name", ["repetition_penalty", "frequency_penalty", "presence_penalty", "logit_bias"]
)
def test_a_parameter_without_meaning_fails_its_request_alone(name: str, value: float) -> None:
    """U3: frontends check first; this guards the worker against all others."""
    sent = {7: value * 50} if name == "logit_bias" else value
    failure = parse_new_request(message(sampling={name: sent}), FULL).failure
    assert failure is not None and (failure.code, failure.field) == ("InvalidRequestError", name)


def test_logits_are_not_divided_by_zero() -> None:
    failure = parse_new_request(message(sampling={"repetition_penalty": 0.0}), FULL).failure
    assert failure is not None and failure.field == "repetition_penalty"


def test_a_payload_that_cannot_be_read_fails_its_request() -> None:
    broken = message()
    broken.payload = b"\xff\xff\xff"
    half = message()
    half.payload = generation_pb2.RequestPayload(token_ids=b"12345").SerializeToString()
    for given in (broken, half):
        failure = parse_new_request(given, SIM).failure
        assert failure is not None and failure.code == "InvalidRequestError"


@pytest.mark.parametrize(("kind", "longest"), [(0, 63), (POOLING, 64)])
def test_a_prompt_longer_than_the_context_fails_its_request(kind: int, longest: int) -> None:
    """U3: the table could not hold it: were the scheduler wrong, nobody else may suffer for it."""
    for length in (longest, longest + 1, 1000):
        given = message(kind=kind)
        given.num_known_tokens = length
        tokens = np.full(length, 5, "<i4").tobytes()
        given.payload = generation_pb2.RequestPayload(token_ids=tokens).SerializeToString()
        request = parse_new_request(given, FULL)
        assert (request.failure is None) == (length <= longest)
        RequestTable(2, FULL.max_model_len, FULL.block_size, FULL.num_blocks).add(request)
