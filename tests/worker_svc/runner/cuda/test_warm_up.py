"""The warm-up's steps: which there are, what they leave behind, and what is told of a compile after them."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from signalbox.telemetry import attributes as names
from tests.worker_svc.runner.cuda.test_cuda_runner import make_runner
from tests.worker_svc.runner.reference import assert_greedy, make_prompts
from tests.worker_svc.runner.runner_harness import GARBAGE, Driver
from worker_svc import metrics
from worker_svc.core.batch import WarmedRunner, WarmUp
from worker_svc.runner.attention.kv_cache import KVCache
from worker_svc.runner.cuda.buckets import bucket_sizes
from worker_svc.runner.cuda.runner import CudaRunner
from worker_svc.runner.draft_model import load_draft
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.progress import MOST_LINES, Progress
from worker_svc.runner.warming.plan import WarmLimits, WarmRow, WarmStep, plan_steps
from worker_svc.runner.warming.warm_up import run_others, run_step

triton = pytest.importorskip("triton")

from triton.runtime.driver import driver  # noqa: E402

from tests.worker_svc.runner.cuda.launches import AbsentGPU  # noqa: E402
from worker_svc.runner.triton.attention import INTERPRETED  # noqa: E402
from worker_svc.runner.triton.launch import write_one  # noqa: E402
from worker_svc.runner.warming.compiles import KernelCompiles  # noqa: E402

ModelDir = Callable[[str], Path]
COUNT = 4
USUAL = WarmLimits(
    num_slots=512,
    most_positions=40_960,
    most_tokens=8192,
    split=512,
    graph_sizes=bucket_sizes(256),
    scores_prompts=True,
)


@pytest.mark.parametrize(
    "limits",
    [
        USUAL,
        WarmLimits(num_slots=1, most_positions=16, most_tokens=8, split=512, graph_sizes=(1,)),
        WarmLimits(
            num_slots=2, most_positions=600, most_tokens=64, split=512, graph_sizes=(1, 2), num_drafts=3
        ),
    ],
)
def test_steps_are_such_as_requests_could_make(limits: WarmLimits) -> None:
    """WU1."""
    steps = plan_steps(limits)
    assert all(len(step.rows) <= limits.num_slots for step in steps)
    assert all(sum(row.count for row in step.rows) <= limits.most_tokens for step in steps)
    assert all(row.start + row.count < limits.most_positions for step in steps for row in step.rows)
    assert {len(step.decodes) for step in steps if not step.chunks} >= set(limits.graph_sizes)
    assert max(row.count for step in steps for row in step.chunks) == min(
        limits.most_tokens, limits.most_positions - 1
    )
    assert len(steps) < 80


def is_written(cache: KVCache, blocks: slice) -> bool:
    """Whether any of these blocks has something else than garbage."""
    parts = [part for layer in cache.layers for part in (layer.keys, layer.values)]
    return any(bool((part[blocks] != GARBAGE).any()) for part in parts)


@pytest.mark.parametrize(("preset", "drafts"), [("tiny-qwen3", True), ("hybrid-lfm2", False)])
def test_nothing_of_a_warm_up_remains(model_dir: ModelDir, preset: str, drafts: bool) -> None:
    """WU2: no block of a request is written, and tokens afterwards are transformers'."""
    path = model_dir(preset)
    runner = make_runner(path, num_slots=4, max_model_len=96, num_blocks=60, num_host_blocks=8)
    driver = Driver(runner, num_slots=4)
    limits = WarmLimits(
        num_slots=4,
        most_positions=96,
        most_tokens=40,
        split=32,
        graph_sizes=(1, 2, 4),
        scores_prompts=runner.info.has_prompt_logprobs,
    )
    drafter, caches = None, [runner._cache]
    if drafts:
        drafter = load_draft(path, path, dtype="float32", device="cpu", block_size=4).on(runner)
        drafter.cache.fill(GARBAGE)
        caches.append(drafter.cache)
    for step in plan_steps(limits):
        run_step(runner, drafter, step)
    run_others(runner)
    runner.forget()
    for cache in caches:
        assert is_written(cache, slice(runner.info.num_blocks, None)), "scratch blocks"
        assert not is_written(cache, slice(runner.info.num_blocks))
    prompts = make_prompts((3, 9))
    requests = [driver.add(prompt, COUNT) for prompt in prompts]
    driver.run()
    for request, prompt in zip(requests, prompts, strict=True):
        assert_greedy(request.output, path, prompt, COUNT)


def test_a_step_that_fails_keeps_the_worker_from_being_ready(
    model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WU4."""
    runner = make_runner(model_dir("tiny-qwen3"), num_slots=4)

    def fail(*_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr("worker_svc.runner.cuda.runner.sample_on_device", fail)
    with pytest.raises(ModelLoadError, match=r"in 'prompt of 1 tokens' \(OutOfMemoryError: no room\)"):
        run_step(runner, None, WarmStep("prompt of 1 tokens", chunks=(WarmRow(0, 1),)))


def test_progress_is_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        progress = Progress("warm-up", 61)
        for number in range(61):
            progress.end(f"part {number}")
    assert len(caplog.messages) == MOST_LINES
    assert caplog.messages[-1].startswith("warm-up 61/61 after ")


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> WarmUp:
    """A warm-up whose compiles are heard of, for a GPU that is not here."""
    if INTERPRETED:
        pytest.skip("kernels are interpreted in this process, not compiled")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    hooks, others = triton.knobs.runtime, []
    for hook in ("jit_cache_hook", "jit_post_compile_hook"):
        monkeypatch.setattr(hooks, hook, lambda **told: others.append(told["fn"].name))
    warm_up = WarmUp()
    monkeypatch.setattr(driver, "_active", AbsentGPU(90))
    monkeypatch.setattr(write_one, "device_caches", defaultdict(write_one.create_binder))
    compiles = KernelCompiles(warm_up)
    compiles.listen()
    write_one.warmup(torch.zeros(4, dtype=torch.int32), 2, grid=(1,))
    assert compiles.num_kernels == 1
    assert others == ["write_one", "write_one"], "who listened before still does"
    compiles.serve()
    return warm_up


def test_a_compile_while_serving_is_counted_and_told_once(
    warm: WarmUp, caplog: pytest.LogCaptureFixture
) -> None:
    """WU3: what was compiled before is not counted, nor is the same variant again."""
    place = torch.zeros(4, dtype=torch.int32)
    with caplog.at_level(logging.WARNING):
        write_one.warmup(place, 3, grid=(1,))
        assert warm.num_late_compiles == 0
        for _ in range(2):
            write_one.warmup(place[1:], 16, grid=(1,))
    assert warm.num_late_compiles == 1
    (line,) = caplog.messages
    assert "Kernel write_one was compiled while serving" in line
    assert line.endswith("place:*i32, number:i32/16")


def test_metrics_tell_of_the_warm_up() -> None:
    told = {
        sample.name: sample.value
        for metric in metrics.of_warm_up(WarmUp(seconds=12.5, num_late_compiles=2))
        for sample in metric.samples
    }
    assert told == {names.METRIC_WORKER_WARM_UP: 12.5, f"{names.METRIC_WORKER_LATE_COMPILES}_total": 2}


def test_the_runner_of_a_gpu_has_a_warm_up_and_that_of_a_cpu_has_none(model_dir: ModelDir) -> None:
    runner = make_runner(model_dir("tiny-qwen3"), num_slots=4)
    assert isinstance(runner, WarmedRunner)
    assert runner.warm_up == WarmUp()
    assert not hasattr(CudaRunner.__bases__[0], "warm_up")
