"""Every family with a head, and encoders without one, against transformers: through the worker's core, in batches of
mixed lengths, in chunks and after preemptions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from signalbox.protocol.enums import ModelTask
from tests.worker_svc.runner.heads.head_harness import HeadWorker, make_head_runner, reference, start
from tests.worker_svc.runner.reference import make_prompts
from tools.random_heads import PRESETS, SEQUENCE, TOKENS
from worker_svc.core.requests.pooling import Activation, PoolingMode, PoolingParams

HeadDir = Callable[[str], Path]
TOLERANCE = 2e-5
LENGTHS = (1, 17, 40, 17, 201, 2)
SEQUENCES = [name for name, preset in PRESETS.items() if preset.auto == SEQUENCE and "minilm" not in name]
TOKEN_HEADS = [name for name, preset in PRESETS.items() if preset.auto == TOKENS]
BASES = [name for name, preset in PRESETS.items() if not preset.auto]


def run(worker: HeadWorker, prompts: list[list[int]], params: list[PoolingParams]) -> None:
    """Runs them in three steps: some whole, some in chunks, and one that is preempted and begins anew."""
    whole = worker.runner.info.reads_both_ways
    for slot, (prompt, each) in enumerate(zip(prompts, params, strict=True)):
        worker.add(slot, prompt, replace(each, is_whole=whole))
    worker.step(started=[start(0, 1), start(1, 17), start(2, 33), start(4, 90)])
    worker.step(started=[start(3, 10), start(5, 2)], chunks=[(4, 90, 50)], preempted_slots=[2])
    worker.step(resumed=[start(2, 40)], chunks=[(3, 10, 7), (4, 140, 61)])


@pytest.mark.parametrize("preset", SEQUENCES)
def test_labels_are_those_of_transformers(head_dir: HeadDir, preset: str) -> None:
    """LM13: raw numbers, and what each activation makes of them; pairs by token types."""
    path = head_dir(preset)
    worker = HeadWorker(make_head_runner(path))
    info = worker.runner.info
    prompts = make_prompts(LENGTHS)
    mode = info.pooling_mode
    raw = PoolingParams(mode, is_raw=True, task=ModelTask.CLASSIFY)
    firsts = [0, 7, 20, 0, 100, 1] if PRESETS[preset].types else [0] * 6
    run(worker, prompts, [replace(raw, num_first_tokens=first) for first in firsts])
    logits = [
        reference(path, preset, prompt, first).logits[0]
        for prompt, first in zip(prompts, firsts, strict=True)
    ]
    for slot, expected in enumerate(logits):
        assert np.abs(worker.results[slot] - expected.numpy()).max() < TOLERANCE * max(
            1, expected.abs().max()
        )
    assert len({float(expected[0]) for expected in logits}) == len(prompts), "a head that tells nothing apart"
    again = HeadWorker(worker.runner)
    run(again, prompts, [replace(raw, is_raw=False, activation=info.label_activation)] * 6)
    for slot, prompt in enumerate(prompts):
        numbers = reference(path, preset, prompt).logits[0]
        expected = numbers.sigmoid() if info.num_labels == 1 else numbers.softmax(0)
        assert np.abs(again.results[slot] - expected.numpy()).max() < TOLERANCE
    assert info.tasks[0] == ModelTask.CLASSIFY
    assert (ModelTask.SCORE in info.tasks) == (info.num_labels == 1)


@pytest.mark.parametrize("preset", TOKEN_HEADS)
def test_labels_of_tokens_are_those_of_transformers(head_dir: HeadDir, preset: str) -> None:
    """LM13."""
    path = head_dir(preset)
    worker = HeadWorker(make_head_runner(path))
    assert worker.runner.info.tasks == (ModelTask.TOKEN_CLASSIFY,)
    prompts = make_prompts(LENGTHS)
    params = PoolingParams(task=ModelTask.TOKEN_CLASSIFY, activation=Activation.SOFTMAX)
    run(worker, prompts, [params] * 3 + [replace(params, is_raw=True)] * 3)
    for slot, prompt in enumerate(prompts):
        logits = reference(path, preset, prompt).logits[0]
        expected = (logits.softmax(-1) if slot < 3 else logits).numpy()
        assert worker.results[slot].shape == (len(prompt), 3)
        assert np.abs(worker.results[slot] - expected).max() < TOLERANCE * max(1, np.abs(expected).max())


@pytest.mark.parametrize("preset", BASES)
@pytest.mark.parametrize("mode", PoolingMode)
def test_encoders_embed_as_transformers_hidden_states_say(
    head_dir: HeadDir, preset: str, mode: PoolingMode
) -> None:
    """LM13."""
    path = head_dir(preset)
    worker = HeadWorker(make_head_runner(path))
    assert worker.runner.info.tasks == (ModelTask.EMBED, ModelTask.TOKEN_EMBED)
    prompts = make_prompts(LENGTHS)
    tokens = PoolingParams(task=ModelTask.TOKEN_EMBED, is_raw=True, dimensions=10)
    run(worker, prompts, [PoolingParams(mode)] * 4 + [tokens, PoolingParams(mode, is_raw=True)])
    for slot, prompt in enumerate(prompts):
        hidden = reference(path, preset, prompt).last_hidden_state[0]
        pooled = {PoolingMode.MEAN: hidden.mean(0), PoolingMode.LAST: hidden[-1], PoolingMode.CLS: hidden[0]}
        vector = pooled[mode]
        expected = hidden[:, :10] if slot == 4 else vector if slot == 5 else vector / vector.norm()
        assert worker.results[slot].shape == tuple(expected.shape)
        assert np.abs(worker.results[slot] - expected.numpy()).max() < TOLERANCE * 5


def test_a_batch_of_all_tasks(head_dir: HeadDir) -> None:
    """Neighbours with other tasks change nothing."""
    path = head_dir("qwen3-score")
    worker = HeadWorker(make_head_runner(path))
    prompt = make_prompts((40,))[0]
    tasks = worker.runner.info.tasks
    assert tasks == (ModelTask.CLASSIFY, ModelTask.SCORE, ModelTask.TOKEN_CLASSIFY)
    for slot, task in enumerate(tasks):
        worker.add(slot, prompt, PoolingParams(is_raw=True, task=task))
    worker.step(started=[start(slot, 25) for slot in range(3)])
    worker.step(chunks=[(slot, 25, 15) for slot in range(3)])
    expected = reference(path, "qwen3-score", prompt).logits[0].numpy()
    assert worker.results[0] == pytest.approx(expected, abs=TOLERANCE)
    assert worker.results[1] == pytest.approx(expected, abs=TOLERANCE)
    assert worker.results[2].shape == (40, 1) and worker.results[2][-1] == pytest.approx(
        expected, abs=TOLERANCE
    )


def test_bfloat16(head_dir: HeadDir) -> None:
    path = head_dir("modernbert-cross-encoder")
    worker = HeadWorker(make_head_runner(path, dtype="bfloat16"))
    prompts = make_prompts((33, 80))
    for slot, prompt in enumerate(prompts):
        worker.add(slot, prompt, PoolingParams(PoolingMode.CLS, True, task=ModelTask.CLASSIFY, is_whole=True))
    worker.step(started=[start(0, 33), start(1, 80)])
    for slot, prompt in enumerate(prompts):
        expected = reference(path, "modernbert-cross-encoder", prompt).logits[0]
        assert abs(float(worker.results[slot][0]) - float(expected)) < 0.15, "as far as bfloat16 goes"


def test_a_step_yields_no_more_than_a_frontend_can_take(
    head_dir: HeadDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request beyond ends with one error, and its neighbours as if it were not there."""
    monkeypatch.setattr("worker_svc.core.requests.prompt_reading.MAX_STEP_BYTES", 64 * 4 * 50)
    worker = HeadWorker(make_head_runner(head_dir("bert-embed")))
    for slot, prompt in enumerate(make_prompts((20, 20, 20))):
        worker.add(slot, prompt, PoolingParams(task=ModelTask.TOKEN_EMBED, is_whole=True))
    worker.step(started=[start(slot, 20) for slot in range(3)])
    assert set(worker.results) == {0, 1} and worker.failures == {2: "ResourceExhaustedError"}


def test_words_of_a_language_model_are_a_score(head_dir: HeadDir, tmp_path: Path) -> None:
    """As Qwen3-Reranker's: how much likelier yes is than no, through a sigmoid."""
    path = head_dir("qwen3-words")
    for file in path.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "1_LogitScore").mkdir()
    (tmp_path / "1_LogitScore" / "config.json").write_text('{"true_token_id": 5, "false_token_id": 4}')
    worker = HeadWorker(make_head_runner(tmp_path))
    info = worker.runner.info
    assert info.num_labels == 1 and info.score_activation == Activation.SIGMOID
    prompt = make_prompts((40,))[0]
    worker.add(0, prompt, PoolingParams(task=ModelTask.SCORE, activation=info.score_activation))
    worker.step(started=[start(0, 40)])
    logits = reference(path, "qwen3-words", prompt).logits[0, -1]
    expected = logits[[4, 5]].softmax(0)[1]
    assert float(worker.results[0][0]) == pytest.approx(float(expected), abs=TOLERANCE)
    assert torch.isfinite(expected)
