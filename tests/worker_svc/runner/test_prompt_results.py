"""Prompt log-probabilities and pooled vectors of a real model, through the worker's core, against transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from signalbox.protocol.enums import ModelTask
from tests.worker_svc.runner.reference import (
    LONGEST,
    OUTPUT_TOKENS,
    assert_same_but_for_ties,
    generate,
    load_reference,
    make_prompts,
    make_runner,
)
from tools.make_random_model import PRESETS
from worker_svc.core.batch import TokenLogprobs
from worker_svc.core.faults.isolation import run_step
from worker_svc.core.requests.pooling import PoolingMode, PoolingParams
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.core.step import NewRequest, RequestRef, SlotStart, StepDelta
from worker_svc.core.worker_core import WorkerCore
from worker_svc.runner.sampling import prompt_results
from worker_svc.runner.torch_runner import TorchRunner

ModelDir = Callable[[str], Path]
FAMILIES = [name for name in PRESETS if name.startswith("tiny-")] + [
    "hybrid-qwen3-next",
    "hybrid-nemotron-h",
    "hybrid-falcon-h1",
]
TOLERANCE = 2e-4
"""Gemma 4 with layers that share comes next to it: 1.3e-4 of a logarithm of 6.7."""
BLOCKS_PER_SLOT = 30


class Worker:
    """A core on a torch runner; each slot has blocks of its own."""

    def __init__(self, runner: TorchRunner) -> None:
        self.runner = runner
        self.core = WorkerCore(runner.info, num_slots=8)
        self.step_id = 0
        self.logprobs: dict[int, list[TokenLogprobs]] = {}
        self.vectors: dict[int, np.ndarray] = {}  # type: ignore[type-arg]
        self.tokens: dict[int, list[int]] = {}
        runner._cache.fill(1e4)

    def add(
        self, slot: int, prompt: list[int], pooling: PoolingParams | None = None, **sampling: Any
    ) -> None:
        params = SamplingParams(**({"temperature": 0.0} | sampling))
        max_tokens = 0 if pooling else OUTPUT_TOKENS
        self.core.add(
            NewRequest(
                slot,
                RequestRef(f"r{slot}", slot, "f"),
                np.array(prompt, np.int32),
                0,
                max_tokens,
                params,
                b"",
                pooling=pooling,
            )
        )

    def step(self, **changes: Any) -> None:
        self.step_id += 1
        step = self.core.apply(StepDelta(self.step_id, 1, **changes))
        sampled, failed = run_step(self.runner, step.copies, step.batch)
        assert not failed
        _, outputs = self.core.commit(step, sampled, failed)
        for output in outputs:
            assert output.counts is None
            for attempt, token in zip(output.attempts.tolist(), output.token_ids.tolist(), strict=True):
                self.tokens.setdefault(attempt, []).append(token)
            self.vectors |= dict(output.vectors)
            for attempt, start, tokens in output.prompt_logprobs:
                known = self.logprobs.setdefault(attempt, [])
                assert start == len(known) + 1, "the next position, once"
                known += tokens


def start(slot: int, length: int) -> SlotStart:
    blocks = np.arange(BLOCKS_PER_SLOT, dtype=np.int32) + BLOCKS_PER_SLOT * slot
    return SlotStart(slot, blocks, 0, length)


def last_hidden(path: Path, prompt: list[int]) -> torch.Tensor:
    """[T, H] after the final norm."""
    with torch.inference_mode():
        model = load_reference(path)
        base = model.base_model if model.base_model is not model else model.model
        return base(torch.tensor([prompt])).last_hidden_state[0]  # type: ignore[no-any-return]


def assert_logprobs_of_reference(path: Path, prompt: list[int], actual: list[TokenLogprobs], n: int) -> None:
    with torch.inference_mode():
        expected = load_reference(path)(torch.tensor([prompt])).logits[0].log_softmax(-1)
    assert len(actual) == len(prompt) - 1
    for i, given in enumerate(actual):
        row, token = expected[i], prompt[i + 1]
        assert given.logprob == pytest.approx(float(row[token]), abs=TOLERANCE)
        beaten_by = int((row > row[token] + TOLERANCE).sum())
        at_most = int((row > row[token] - TOLERANCE).sum())
        assert beaten_by + 1 <= given.rank <= at_most
        assert given.top_logprobs == pytest.approx(row.topk(n).values.tolist(), abs=TOLERANCE)
        assert [float(row[t]) for t in given.top_token_ids] == pytest.approx(
            given.top_logprobs, abs=TOLERANCE
        )


def expected_vector(path: Path, prompt: list[int], pooling: PoolingParams) -> torch.Tensor:
    hidden = last_hidden(path, prompt)
    chosen = {PoolingMode.MEAN: hidden.mean(0), PoolingMode.LAST: hidden[-1], PoolingMode.CLS: hidden[0]}
    vector = chosen[pooling.mode][: pooling.dimensions or None]
    return vector if pooling.is_raw else torch.nn.functional.normalize(vector, dim=0)


@pytest.mark.parametrize("preset", FAMILIES)
def test_prompts_are_read_as_transformers_reads_them(model_dir: ModelDir, preset: str) -> None:
    """Every family: chunks, a preemption in mid-prefill, and neighbours that generate, in the same batches."""
    path = model_dir(preset)
    worker = Worker(make_runner(path, max_model_len=LONGEST.get(preset)))
    plain, scored, pooled = make_prompts((17, 40, 33))
    mean = PoolingParams(PoolingMode.MEAN)
    worker.add(1, plain)
    worker.step(started=[start(1, 17)])
    worker.add(2, scored, num_prompt_logprobs=3)
    worker.add(3, pooled, mean)
    worker.step(started=[start(2, 7), start(3, 20)])
    worker.step(preempted_slots=[2, 3])
    worker.step(resumed=[start(2, 25), start(3, 5)])
    worker.step(chunks=[(2, 25, 15), (3, 5, 28)])
    for _ in range(OUTPUT_TOKENS - 5):
        worker.step()
    assert_logprobs_of_reference(path, scored, worker.logprobs[2], 3)
    vector = torch.from_numpy(worker.vectors[3])
    assert (vector - expected_vector(path, pooled, mean)).abs().max() < TOLERANCE
    assert set(worker.logprobs) == {2} and set(worker.vectors) == {3}
    assert assert_same_but_for_ties(worker.tokens[1], *generate(path, tuple(plain))) <= 1


@pytest.mark.parametrize("is_raw", [True, False])
@pytest.mark.parametrize("dimensions", [0, 10])
@pytest.mark.parametrize("mode", PoolingMode)
def test_vectors_equal_those_of_the_hidden_states(
    model_dir: ModelDir, mode: PoolingMode, dimensions: int, is_raw: bool
) -> None:
    path = model_dir("tiny-qwen3")
    pooling = PoolingParams(mode, is_raw, dimensions)
    worker = Worker(make_runner(path))
    prompts = make_prompts((1, 16, 61))
    for slot, prompt in enumerate(prompts):
        worker.add(slot, prompt, pooling)
    worker.step(started=[start(0, 1), start(1, 16), start(2, 30)])
    worker.step(chunks=[(2, 30, 31)])
    for slot, prompt in enumerate(prompts):
        vector = torch.from_numpy(worker.vectors[slot])
        expected = expected_vector(path, prompt, pooling)
        assert vector.shape == expected.shape
        assert (vector - expected).abs().max() < TOLERANCE


def test_logits_of_a_long_prompt_are_made_in_slices(
    model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small the slices, the values are the same; what is there at a time is bounded."""
    path = model_dir("tiny-llama")
    runner = make_runner(path)
    whole, sliced = Worker(runner), Worker(runner)
    prompts = make_prompts((61, 40))
    assert runner._head is not None
    sizes: list[int] = []
    logits = runner._head.logits

    def watched(captured: Any, queries: torch.Tensor) -> torch.Tensor:
        sizes.append(len(queries))
        return logits(captured, queries)

    monkeypatch.setattr(runner._head, "logits", watched)
    for worker, at_once in ((whole, 1 << 24), (sliced, 7 * runner.info.vocab_size)):
        monkeypatch.setattr(prompt_results, "LOGITS_AT_ONCE", at_once)
        for slot, prompt in enumerate(prompts):
            worker.add(slot, prompt, num_prompt_logprobs=20)
        worker.step(started=[start(0, 61), start(1, 40)])
    assert sizes == [99, *[7] * 14, 1]
    for slot, prompt in enumerate(prompts):
        assert_logprobs_of_reference(path, prompt, sliced.logprobs[slot], 20)
        one, other = ([token.logprob for token in w.logprobs[slot]] for w in (whole, sliced))
        assert one == pytest.approx(other, abs=1e-6)


def test_a_batch_of_pooling_requests_alone(model_dir: ModelDir) -> None:
    path = model_dir("tiny-mistral")
    worker = Worker(make_runner(path, dtype="bfloat16"))
    prompt = make_prompts((33,))[0]
    worker.add(0, prompt, PoolingParams(PoolingMode.MEAN))
    worker.step(started=[start(0, 33)])
    expected = expected_vector(path, prompt, PoolingParams(PoolingMode.MEAN))
    assert float(torch.from_numpy(worker.vectors[0]) @ expected) > 0.999, "as far as bfloat16 goes"


def test_the_runner_says_what_it_serves(model_dir: ModelDir, tmp_path: Path) -> None:
    source = model_dir("tiny-llama")
    for file in source.iterdir():
        (tmp_path / file.name).symlink_to(file)
    info = make_runner(tmp_path).info
    assert (
        info.tasks == (ModelTask.GENERATE, ModelTask.EMBED, ModelTask.TOKEN_EMBED)
        and info.has_prompt_logprobs
    )
    assert (info.embedding_size, info.pooling_mode) == (64, PoolingMode.LAST)
    (tmp_path / "1_Pooling").mkdir()
    config = tmp_path / "1_Pooling" / "config.json"
    config.write_text(json.dumps({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}))
    assert make_runner(tmp_path).info.pooling_mode == PoolingMode.MEAN
    config.write_text(json.dumps({"pooling_mode_max_tokens": True}))
    info = make_runner(tmp_path).info
    assert info.tasks == (ModelTask.GENERATE,) and info.embedding_size == 0
