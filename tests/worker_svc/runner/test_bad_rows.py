"""Rows without finite numbers are named by every path of the runners, and harm nobody beside or behind them (N1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from signalbox.cli.ring.ring import DEMO_MODEL
from tests.worker_svc.runner.cuda.ahead_harness import AheadDriver
from tests.worker_svc.runner.runner_harness import Driver
from worker_svc.core.batch import QuerySpan
from worker_svc.core.requests.pooling import PoolingMode, PoolingParams
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.cpu import optimize
from worker_svc.runner.cpu.direct_forward import DirectForward
from worker_svc.runner.cuda.runner import CudaRunner
from worker_svc.runner.torch_runner import TorchRunner

ModelDir = Callable[[str], Path]
BAD = 77
GOOD = [5, 6, 7, 8, 9]
DRAWN = SamplingParams(temperature=0.9, top_k=20, seed=4)


def make_runner(path: Path, is_cuda: bool, dtype: str = "float32") -> TorchRunner:
    options = {"served_model_name": "tiny", "dtype": dtype, "num_blocks": 64, "block_size": 4, "threads": 1}
    return CudaRunner(path, num_slots=16, **options) if is_cuda else TorchRunner(path, **options)  # type: ignore[arg-type]


@contextmanager
def bad_token(runner: TorchRunner) -> Iterator[None]:
    """The hidden states of one token are NaN from the first layer on; the head, which may be tied to it, is not."""

    def spoil(_module: torch.nn.Module, args: tuple[torch.Tensor], states: torch.Tensor) -> torch.Tensor:
        return states.masked_fill((args[0] == BAD)[..., None], torch.nan)

    hook = runner.model.module.get_input_embeddings().register_forward_hook(spoil)
    try:
        yield
    finally:
        hook.remove()


@pytest.mark.parametrize("is_cuda", [False, True], ids=["torch", "cuda"])
@pytest.mark.parametrize("preset", ["tiny-llama", "tiny-qwen3", "tiny-gemma2"])
def test_bad_rows_are_named_beside_good_ones(model_dir: ModelDir, preset: str, is_cuda: bool) -> None:
    """N1"""
    check_that_bad_rows_are_named(make_runner(model_dir(preset), is_cuda))


def check_that_bad_rows_are_named(runner: TorchRunner) -> None:
    """The last chunk of a prompt, chunks without logits, drawn tokens and decode rows."""
    driver = Driver(runner)
    with bad_token(runner):
        good, last = driver.add(GOOD, 8), driver.add([*GOOD, BAD, 1], 8, DRAWN)
        part, later = driver.add([1, BAD, 2, 3, 4, 5, 6], 8), driver.add([*GOOD, *GOOD, BAD, 3], 8)
        sampled = driver.step({good.slot: 5, last.slot: 7, part.slot: 4, later.slot: 6})
        assert sampled.bad_rows.tolist() == [1, 2]
        driver.requests.remove(last)
        sampled = driver.step({later.slot: 4})
        assert sampled.bad_rows.tolist() == []
        sampled = driver.step({later.slot: 2})
        assert sampled.bad_rows.tolist() == [1]
        rows = sorted([good.slot, later.slot])
        assert driver.step({}).bad_rows.tolist() == [rows.index(later.slot)], "its cache is spoilt"
        runner.check()


def test_the_native_layers_name_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """N1, by the way without transformers' code, also where this machine has a faster one."""
    kernels = native_kernels()
    if kernels is None or not kernels.has_dot:
        pytest.skip("there is no C++ compiler, or no product of bfloat16")
    monkeypatch.setattr(optimize, "uses_dot", lambda kernels, dtype: True)
    runner = make_runner(DEMO_MODEL / "draft", False, dtype="bfloat16")
    assert isinstance(runner._forward, DirectForward)
    check_that_bad_rows_are_named(runner)


def test_bad_rows_are_named_where_steps_run_ahead(model_dir: ModelDir) -> None:
    """N1: a row that runs on a token which the device alone knows."""
    runner = make_runner(model_dir("tiny-qwen3"), True)
    assert isinstance(runner, CudaRunner)
    driver, bad = AheadDriver(runner), []
    collect = runner.collect
    runner.collect = lambda launched: (sampled := collect(launched), bad.append(sampled.bad_rows.tolist()))[0]  # type: ignore[method-assign]
    driver.start(GOOD, 6)
    spoilt = driver.start([*GOOD, 1], 6)
    layer = runner._cache.layers[0]
    layer.keys[spoilt.blocks[0]] = layer.values[spoilt.blocks[0]] = torch.nan
    driver.finish_all()
    assert driver.totals.launched_ahead
    row = sorted(request.slot for request in driver.requests).index(spoilt.slot)
    assert bad[:2] == [[], []] and bad[2:] == [[row]] * len(bad[2:])


@pytest.mark.parametrize("is_cuda", [False, True], ids=["torch", "cuda"])
@pytest.mark.parametrize("preset", ["tiny-qwen3", "tiny-mistral"])
def test_what_a_bad_row_leaves_behind_harms_nobody(model_dir: ModelDir, preset: str, is_cuda: bool) -> None:
    """A block that is given away is written before it is read, and what lies behind a sequence's end is not read."""
    path, outputs = model_dir(preset), []
    for garbage in (0.0, float("nan")):
        runner = make_runner(path, is_cuda)
        driver = Driver(runner)
        runner._cache.fill(garbage)
        requests = [driver.add([*GOOD, number], 6) for number in range(3)]
        named = [driver.step({request.slot: 3 for request in requests}).bad_rows]
        named += [driver.step({request.slot: 3 for request in requests}).bad_rows]
        while not all(request.is_finished for request in requests):
            named.append(driver.step({}).bad_rows)
        assert not any(len(rows) for rows in named)
        outputs.append([request.output for request in requests])
    assert outputs[0] == outputs[1]


def test_pooled_and_scored_rows_are_looked_at(model_dir: ModelDir) -> None:
    """N1: rows without samples, through transformers' own forward."""
    runner = make_runner(model_dir("tiny-llama"), False)
    driver = Driver(runner)
    with bad_token(runner):
        requests = [driver.add(prompt, 1) for prompt in (GOOD, [BAD, *GOOD], GOOD, [*GOOD, BAD])]
        _, batch = driver.build({request.slot: len(request.tokens) for request in requests})
        starts = batch.query_starts.tolist()
        batch.pooled = [QuerySpan(row, starts[row], starts[row + 1]) for row in (0, 1)]
        batch.pooling = [PoolingParams(PoolingMode.MEAN)] * 16
        batch.scored = [QuerySpan(row, starts[row], starts[row + 1] - 1) for row in (2, 3)]
        assert runner.execute(batch).bad_rows.tolist() == [1, 3]


def test_a_head_without_numbers_is_seen_in_the_tokens(model_dir: ModelDir) -> None:
    """N1: hidden states are fine, and every logit is NaN."""
    runner = make_runner(model_dir("tiny-llama"), False)
    driver = Driver(runner)
    requests = [driver.add(GOOD, 4), driver.add(GOOD, 4, DRAWN)]
    head = runner.model.module.lm_head
    head.register_forward_hook(lambda _module, _args, logits: torch.full_like(logits, torch.nan))
    sampled = driver.step({request.slot: 5 for request in requests})
    assert sampled.bad_rows.tolist() == [0, 1]


def test_a_device_without_numbers_fails_its_check(model_dir: ModelDir) -> None:
    runner = make_runner(model_dir("tiny-llama"), False)
    runner.check()
    for parameter in runner.model.module.model.parameters():
        if parameter.dtype.is_floating_point:
            with torch.inference_mode():
                parameter.fill_(np.nan)
    with pytest.raises(ArithmeticError, match="not finite"):
        runner.check()
