"""Sampling with drafts draws from the model's own distribution, by every method, and sees the drafts as output."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from signalbox.grammar.limits import FormLimits
from signalbox.protocol.enums import FinishReason
from signalbox.v1 import generation_pb2
from tests.pairs import in_soak
from tests.worker_svc.drafting.local_ring import LocalRing
from tools.make_random_model import fill_weights
from tools.tiny_families import EOS_TOKEN_ID, TINY
from worker_svc.grammar.compiler import GrammarCompiler
from worker_svc.grammar.preparation import GrammarPreparation
from worker_svc.runner.draft_model import load_draft
from worker_svc.runner.torch_runner import TorchRunner

VOCAB_SIZE, NUM_DRAFTS, NUM_REQUESTS = 8, 3, 3000
PROMPT = [3, 1, 4, 1, 5]
WORDS = ("a", "b", "</s>", "c", "d", "ab", "cd", "e")
FORM = "(ab|cd?|da|e)*(abcd){9}"
BEGUN = re.compile("(ab|cd?|da|e)*[ad]?")
"""What an output that is far from its end may be by FORM: `abcd` is made of the same parts."""
F64 = NDArray[np.float64]
Limit = Callable[[F64, list[int]], F64]


@pytest.fixture(scope="module")
def small_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of eight tokens."""
    path = tmp_path_factory.mktemp("small")
    model: Any = LlamaForCausalLM(LlamaConfig(**TINY | {"vocab_size": VOCAB_SIZE}))
    fill_weights(model, torch.Generator().manual_seed(3))
    model.save_pretrained(path)
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(WORDS)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(WORDS[EOS_TOKEN_ID], special=True)])
    tokenizer.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture(scope="module")
def grammars(small_dir: Path) -> Iterator[GrammarPreparation]:
    compiler = GrammarCompiler(small_dir / "tokenizer.json", VOCAB_SIZE, (EOS_TOKEN_ID,), FormLimits())
    preparation = GrammarPreparation(compiler)
    yield preparation
    preparation.close()


def make_ring(
    path: Path, with_drafts: bool, num_seqs: int = 8, grammars: GrammarPreparation | None = None
) -> LocalRing:
    """The model drafts for itself, greedily."""
    options: dict[str, Any] = {"dtype": "float32", "block_size": 4, "threads": 1, "max_model_len": 64}
    runner = TorchRunner(path, served_model_name="small", num_blocks=600, **options)
    if not with_drafts:
        return LocalRing(runner, None, num_seqs=num_seqs)
    runner.info = replace(runner.info, max_draft_tokens=NUM_DRAFTS)
    drafter = load_draft(path, path, dtype="float32", device="cpu", block_size=4).on(runner)
    return LocalRing(runner, drafter, depth=2, num_drafts=NUM_DRAFTS, num_seqs=num_seqs, grammars=grammars)


def softmax(scores: F64) -> F64:
    weights = np.exp(scores - scores.max())
    return np.asarray(weights / weights.sum())


def keep(probs: F64, is_kept: NDArray[np.bool_]) -> F64:
    return np.asarray(np.where(is_kept, probs, 0.0) / probs[is_kept].sum())


def top_k(scores: F64, _: list[int]) -> F64:
    probs = softmax(scores / 1.3)
    return keep(probs, probs >= np.sort(probs)[-3])


def top_p(scores: F64, _: list[int]) -> F64:
    probs = softmax(scores / 1.3)
    order = np.argsort(-probs)
    before = np.cumsum(probs[order]) - probs[order]
    return keep(probs, np.isin(np.arange(VOCAB_SIZE), order[before < 0.8]))


def min_p(scores: F64, _: list[int]) -> F64:
    probs = softmax(scores / 1.3)
    return keep(probs, probs >= 0.2 * probs.max())


def penalised(scores: F64, output: list[int]) -> F64:
    counts = np.bincount(output, minlength=VOCAB_SIZE)
    return softmax((scores - 0.6 * counts - 0.3 * (counts > 0)) / 1.3)


def repetition(scores: F64, output: list[int]) -> F64:
    seen = np.isin(np.arange(VOCAB_SIZE), PROMPT + output)
    return softmax(np.where(seen, np.where(scores > 0, scores / 1.7, scores * 1.7), scores) / 1.3)


def constrained(scores: F64, output: list[int]) -> F64:
    text = "".join(WORDS[token] for token in output)
    texts = [text + word for word in WORDS]
    allowed = [bool(BEGUN.fullmatch(text)) and token != EOS_TOKEN_ID for token, text in enumerate(texts)]
    if not any(allowed):
        return np.zeros(VOCAB_SIZE)
    return keep(softmax(scores / 1.3), np.array(allowed))


METHODS: dict[str, tuple[dict[str, Any], Limit]] = {
    "temperature": ({}, lambda scores, _: softmax(scores / 1.3)),
    "top_k": ({"top_k": 3}, top_k),
    "top_p": ({"top_p": 0.8}, top_p),
    "min_p": ({"min_p": 0.2}, min_p),
    "frequency and presence": ({"frequency_penalty": 0.6, "presence_penalty": 0.3}, penalised),
    "repetition": ({"repetition_penalty": 1.7}, repetition),
}


def expected_of(path: Path, limit: Limit, length: int) -> dict[tuple[int, ...], float]:
    """The probability of each output of `length` tokens, by transformers' logits of it."""
    model: Any = _reference(path)
    outputs = list(itertools.product(range(VOCAB_SIZE), repeat=length))
    with torch.inference_mode():
        logits = model(torch.tensor([[*PROMPT, *output] for output in outputs])).logits.double().numpy()
    return {
        output: float(
            np.prod([limit(row[len(PROMPT) - 1 + i], list(output[:i]))[output[i]] for i in range(length)])
        )
        for output, row in zip(outputs, logits, strict=True)
    }


@cache
def _reference(path: Path) -> Any:
    return LlamaForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")


def assert_drawn_from(counts: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> None:
    """Pearson's chi-square test; outcomes that are expected less than five times are put together."""
    total = counts.total()
    assert not [output for output in counts if expected[output] < 1e-12], "an impossible output"
    often = [output for output, probability in expected.items() if total * probability >= 5]
    observed = np.array([counts[output] for output in often], float)
    wanted = np.array([total * expected[output] for output in often])
    rest = total - wanted.sum()
    if rest > 5:
        observed, wanted = np.append(observed, total - observed.sum()), np.append(wanted, rest)
    statistic, freedom = float(((observed - wanted) ** 2 / wanted).sum()), len(wanted) - 1
    assert freedom > 10
    # Wilson and Hilferty 1931: the cube root is about normal. 3.1 is passed once in a thousand times.
    score = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / (2 / (9 * freedom)) ** 0.5
    assert score < 3.1, f"chi-square {statistic:.0f} with {freedom} degrees of freedom"


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["temperature", "top_p", "repetition", *in_soak("top_k", "min_p", "frequency and presence")]
)
def test_outputs_with_drafts_follow_the_model_s_distribution(small_dir: Path, method: str) -> None:
    """D2: of three tokens the first comes with the prompt, the others from steps with drafts."""
    params, limit = METHODS[method]
    ring = make_ring(small_dir, with_drafts=True, num_seqs=60)
    clients = [
        ring.submit(PROMPT, 4, generation_pb2.SamplingParams(temperature=1.3, seed=seed, **params))
        for seed in range(NUM_REQUESTS)
    ]
    ring.run()
    totals = ring.core.draft_totals
    assert totals.num_drafted > NUM_REQUESTS
    assert 0.1 < ring.acceptance < 0.9
    counts = Counter(tuple(client.output[:3]) for client in clients)
    assert_drawn_from(counts, expected_of(small_dir, limit, 3))


@pytest.mark.slow
def test_constrained_outputs_with_drafts_follow_the_model_s_distribution(
    small_dir: Path, grammars: GrammarPreparation
) -> None:
    """Of the tokens that the form allows, by Python's own view of it."""
    ring = make_ring(small_dir, with_drafts=True, num_seqs=60, grammars=grammars)
    form = generation_pb2.StructuredOutput(regex=FORM)
    clients = [
        ring.submit(
            PROMPT, 4, generation_pb2.SamplingParams(temperature=1.3, seed=seed, structured_output=form)
        )
        for seed in range(NUM_REQUESTS)
    ]
    ring.run()
    assert {tuple(client.ends) for client in clients} == {(FinishReason.LENGTH,)}
    assert ring.core.draft_totals.num_drafted > NUM_REQUESTS / 2
    assert 0.1 < ring.acceptance < 0.9
    counts = Counter(tuple(client.output[:3]) for client in clients)
    assert_drawn_from(counts, expected_of(small_dir, constrained, 3))


@pytest.mark.slow
def test_the_chi_square_test_can_fail(small_dir: Path) -> None:
    """Outputs at another temperature are not taken for ours."""
    ring = make_ring(small_dir, with_drafts=True, num_seqs=60)
    clients = [
        ring.submit(PROMPT, 4, generation_pb2.SamplingParams(temperature=0.9, seed=seed))
        for seed in range(NUM_REQUESTS)
    ]
    ring.run()
    counts = Counter(tuple(client.output[:3]) for client in clients)
    with pytest.raises(AssertionError, match="chi-square"):
        assert_drawn_from(counts, expected_of(small_dir, METHODS["temperature"][1], 3))


@pytest.mark.parametrize("temperature", [0.0, 0.6])
def test_drafts_bring_no_token_that_is_not_allowed(small_dir: Path, temperature: float) -> None:
    """D5."""
    sampling = generation_pb2.SamplingParams(
        temperature=temperature, seed=5, allowed_token_ids=[1, 4, 5], logprobs=0, logprob_token_ids=[4, 0]
    )
    got: dict[bool, list[Any]] = {}
    for with_drafts in (False, True):
        ring = make_ring(small_dir, with_drafts)
        got[with_drafts] = [ring.submit([*PROMPT, first], 20, sampling) for first in range(VOCAB_SIZE)]
        ring.run()
        assert (ring.core.draft_totals.num_accepted > 5) == with_drafts
    for plain, drafted in zip(got[False], got[True], strict=True):
        assert drafted.output == plain.output
        assert set(drafted.output) <= {1, 4, 5} and len(drafted.output) == 20


@pytest.mark.sampled
@pytest.mark.parametrize("temperature", [0.0, 0.6])
def test_all_that_looks_at_the_output_sees_the_drafts_before_it(small_dir: Path, temperature: float) -> None:
    """D5: penalties, bad words of several tokens, held-back stops and log-probabilities, all at once."""
    sampling = generation_pb2.SamplingParams(
        temperature=temperature,
        seed=5,
        repetition_penalty=1.1,
        frequency_penalty=0.1,
        presence_penalty=0.05,
        min_tokens=9,
        stop_token_ids=[2, 6],
        logprobs=2,
        logit_bias={1: 0.5},
    )
    got: dict[bool, list[Any]] = {}
    for with_drafts in (False, True):
        ring = make_ring(small_dir, with_drafts)
        clients = [
            ring.submit([*PROMPT, first], 30, sampling, bad_words=[[0, 3], [4, 4], [5, 1, 7]])
            for first in range(VOCAB_SIZE)
        ]
        ring.run()
        got[with_drafts] = clients
        assert (ring.core.draft_totals.num_accepted > 20) == with_drafts
    for plain, drafted in zip(got[False], got[True], strict=True):
        assert drafted.output == plain.output
        assert drafted.logprobs == pytest.approx(plain.logprobs, abs=1e-4)
        assert len(drafted.logprobs) == len(drafted.output) >= 9
        text = bytes(drafted.output)
        assert not any(bytes(word) in text for word in ([0, 3], [4, 4], [5, 1, 7]))
    assert any(len(client.output) < 30 for client in got[True]), "no stop token came"
