"""Every bad input is refused with the name of its field; what fits is filled in."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace
from typing import Any

import pytest

from frontend_svc.config import Limits
from frontend_svc.models import Model, ModelDirectory, Worker
from frontend_svc.requests import validation
from frontend_svc.requests.processor import RequestProcessor
from frontend_svc.requests.request import ClientRequest, FieldNames, Sampling, read_trace, sampling_of
from frontend_svc.requests.sessions.session import Session
from frontend_svc.requests.sessions.session_table import SessionTable
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.errors import (
    ContextLengthError,
    InvalidRequestError,
    RequestTooLargeError,
    SignalboxError,
    UnavailableError,
    UnsupportedError,
)
from signalbox.protocol.hash_chain import chain_hashes, root_hash
from tests.frontend_svc.requests.test_sessions import Recorder, make_table

MODEL = Model("toy", max_model_len=64, max_request_tokens=40, block_size=4, vocab_size=100, num_workers=1)
LIMITS = Limits(max_stop_strings=2, max_stop_string_chars=8, max_stop_token_ids=2, max_logit_bias=2)
WORKER = Worker("w", "i", "127.0.0.1:1", "toy", 64, 4, 40, 400, "")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", 1e9),
        ("top_k", -1),
        ("top_k", 2**32),
        ("top_p", 0),
        ("top_p", 1.01),
        ("top_p", math.nan),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("seed", -1),
        ("seed", 2**64),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("min_tokens", -1),
        ("logprobs", 21),
        ("logprobs", -1),
        ("repetition_penalty", 0),
        ("repetition_penalty", -1),
        ("repetition_penalty", math.inf),
        ("frequency_penalty", 2.1),
        ("frequency_penalty", math.nan),
        ("presence_penalty", -2.1),
        ("stop", ("",)),
        ("stop", ("a", "b", "c")),
        ("stop", ("123456789",)),
        ("stop_token_ids", (100,)),
        ("stop_token_ids", (-1,)),
        ("stop_token_ids", (1, 2, 3)),
        ("allowed_token_ids", ()),
        ("allowed_token_ids", (1, 100)),
        ("allowed_token_ids", (0,) * 101),
        ("logprob_token_ids", (3,)),
        ("logit_bias", {100: 1.0}),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {1: 100.1}),
        ("logit_bias", {1: math.nan}),
        ("logit_bias", {1: 1.0, 2: 1.0, 3: 1.0}),
    ],
)
def test_bad_sampling_parameters_name_their_field(name: str, value: Any) -> None:
    request = ClientRequest(
        prompt=[1], sampling=sampling_of({name: value}), names=FieldNames(sampling_prefix="sampling.")
    )
    with pytest.raises(InvalidRequestError, match=name) as caught:
        validation.check_sampling(request, LIMITS, MODEL.vocab_size)
    assert caught.value.field == f"sampling.{name}"


def test_the_bounds_themselves_are_fine() -> None:
    for temperature, top_k, top_p, min_p, penalty in ((0, 0, 1e-6, 0, -2), (100, 2**32 - 1, 1, 1, 2)):
        sampling = Sampling(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            frequency_penalty=penalty,
            presence_penalty=penalty,
            logprobs=20,
            seed=2**64 - 1,
            stop=("12345678",),
            stop_token_ids=(0, 99),
            logit_bias={0: -100, 99: 100},
            allowed_token_ids=tuple(range(100)),
            logprob_token_ids=(99, 0),
        )
        validation.check_sampling(ClientRequest(prompt=[1], sampling=sampling), LIMITS, MODEL.vocab_size)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("request_id", "x" * 129),
        ("request_id", "a\nb"),
        ("priority", 1001),
        ("priority", -1001),
        ("cache_salt", "x" * 257),
    ],
)
def test_bad_request_fields_are_named(name: str, value: Any) -> None:
    request = replace(ClientRequest(prompt=[1], sampling=Sampling()), **{name: value})
    with pytest.raises(InvalidRequestError) as caught:
        validation.check_request(request)
    assert caught.value.field == name


@pytest.mark.parametrize(
    ("token_ids", "sentence"),
    [
        ([], "empty"),
        ([1, 100], "token id 100"),
        ([-1], "token id -1"),
        ([1] * 40, "cache"),
        ([2**40], "token id"),
    ],
)
def test_bad_prompts_name_the_prompt(token_ids: list[int], sentence: str) -> None:
    with pytest.raises(InvalidRequestError, match=sentence) as caught:
        validation.check_prompt_tokens(
            ClientRequest(token_ids, Sampling(), names=FieldNames(prompt="messages")), token_ids, MODEL
        )
    assert caught.value.field == "messages"


def test_a_prompt_longer_than_the_model() -> None:
    model = replace(MODEL, max_request_tokens=1000)
    with pytest.raises(ContextLengthError, match="maximum context length is 64 tokens"):
        validation.check_prompt_tokens(ClientRequest([1] * 64, Sampling()), [1] * 64, model)


def resolve(num_prompt_tokens: int, default: int | None = None, clamp: bool = False, **sampling: Any) -> int:
    request = ClientRequest(
        [1],
        Sampling(**sampling),
        names=FieldNames(max_tokens="max_completion_tokens"),
        default_max_tokens=default,
        clamp_max_tokens=clamp,
    )
    return validation.resolve_max_tokens(request, num_prompt_tokens, MODEL)


def test_max_tokens() -> None:
    assert resolve(10) == 30
    assert resolve(10, default=16) == 16
    assert resolve(30, default=16) == 10
    assert resolve(10, max_tokens=5) == 5
    for max_tokens in (31, 41):
        with pytest.raises(ContextLengthError, match="maximum context length is 40 tokens") as too_long:
            resolve(10, max_tokens=max_tokens)
        assert too_long.value.field == "max_completion_tokens"
    assert resolve(30, clamp=True, max_tokens=40) == 10, "cut to the room behind the prompt"
    with pytest.raises(ContextLengthError):
        resolve(10, clamp=True, max_tokens=41)
    with pytest.raises(InvalidRequestError) as caught:
        resolve(10, max_tokens=5, min_tokens=6)
    assert caught.value.field == "min_tokens"


def make_processor(tokenizer: Tokenizer | None, table: SessionTable | None = None) -> RequestProcessor:
    directory = ModelDirectory()
    directory.replace([WORKER])
    return RequestProcessor(table or make_table(Recorder()), directory, tokenizer, Limits())


async def test_an_open_session_has_everything_filled_in(tokenizer: Tokenizer) -> None:
    text = "the quick brown fox jumps"
    request = ClientRequest(text, Sampling(), id_prefix="cmpl-", cache_salt="tenant", default_max_tokens=16)
    session: Session = await make_processor(tokenizer).open(request)
    request, ids = session.request, tokenizer.fast.encode(text).ids
    prompt = array("i", ids).tobytes()
    assert (request.prompt, request.num_prompt_tokens, request.model) == (prompt, len(ids), "toy")
    assert request.request_id.startswith("cmpl-")
    assert request.max_tokens == 16
    assert session.hashes is not None
    assert session.hashes.extend(prompt) == {b"": chain_hashes(root_hash("toy", salt="tenant"), prompt, 4)}


async def test_hashes_go_on_over_prior_output(tokenizer: Tokenizer) -> None:
    session = await make_processor(tokenizer).open(ClientRequest([1, 2, 3, 4, 5], Sampling()))
    session.on_outputs(1, 0, (6, 7, 8, 9), (), 1.0)
    known = session.request.prompt + session.output.tobytes()
    assert session.hashes is not None
    assert session.hashes.extend(known) == {b"": chain_hashes(root_hash("toy"), known, 4)}


async def test_seeds_are_drawn_unless_given(tokenizer: Tokenizer) -> None:
    """D1."""
    processor = make_processor(tokenizer)
    drawn = [(await processor.open(ClientRequest([1], Sampling()))).request.seed for _ in range(2)]
    assert drawn[0] != drawn[1]
    assert (await processor.open(ClientRequest([1], Sampling(seed=0)))).request.seed == 0


async def test_long_prompts_go_through_threads(tokenizer: Tokenizer) -> None:
    directory = ModelDirectory()
    directory.replace([replace(WORKER, max_model_len=100_000, max_request_tokens=100_000)])
    processor = RequestProcessor(make_table(Recorder()), directory, tokenizer, Limits())
    session = await processor.open(ClientRequest("the lazy dog " * 4000, Sampling()))
    assert session.request.prompt == array("i", tokenizer.fast.encode("the lazy dog " * 4000).ids).tobytes()


@pytest.mark.parametrize(
    ("prompt", "field"),
    [
        (ClientRequest("text", Sampling(), names=FieldNames(prompt="text")), "text"),
        (
            ClientRequest([1], Sampling(stop=("x",)), names=FieldNames(sampling_prefix="sampling.")),
            "sampling.stop",
        ),
    ],
)
async def test_text_needs_a_tokenizer(prompt: ClientRequest, field: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        await make_processor(None).open(prompt)
    assert caught.value.field == field
    await make_processor(None).open(ClientRequest([1], Sampling()))


async def test_nothing_is_accepted_while_stopping(tokenizer: Tokenizer) -> None:
    processor = make_processor(tokenizer)
    processor.stopping = True
    with pytest.raises(UnavailableError):
        await processor.open(ClientRequest([1], Sampling()))


async def test_a_refused_request_leaves_nothing_behind(tokenizer: Tokenizer) -> None:
    table = make_table(Recorder())
    with pytest.raises(SignalboxError):
        await make_processor(tokenizer, table).open(ClientRequest("", Sampling()))
    assert len(table) == 0


def test_trace_contexts() -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    assert read_trace(parent, "k=v").traceparent == parent
    assert read_trace("rubbish", "k=v").tracestate == ""
    assert read_trace(parent, "x" * 600).tracestate == ""


def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenized() -> None:
    text = "a" * (10 * MODEL.max_tokens + 1)
    with pytest.raises(ContextLengthError, match=f"has {len(text)} characters") as caught:
        validation.check_text_length(ClientRequest(text, {}), 10, MODEL, Limits())
    assert caught.value.field == "prompt"
    with pytest.raises(RequestTooLargeError):
        validation.check_text_length(ClientRequest(text, {}), 10, MODEL, Limits(max_prompt_tokens=5))


@pytest.mark.parametrize(
    ("prompt", "longest", "keeps"),
    [
        ("a" * 10 * MODEL.max_tokens, 10, None),
        ("a" * 10_000, None, None),
        ("a" * 10_000, 10, 5),
        ([1] * 10_000, 10, None),
    ],
)
def test_what_might_fit_is_tokenized(prompt: str | list[int], longest: int | None, keeps: int | None) -> None:
    request = ClientRequest(prompt, {}, truncate_prompt_tokens=keeps)
    validation.check_text_length(request, longest, MODEL, Limits())
