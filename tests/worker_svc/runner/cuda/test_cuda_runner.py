"""The GPU's runner on the CPU, without graphs: steps ahead of their tokens give what steps in turn give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from signalbox.errors import StartupError
from tests.worker_svc.runner.cuda.ahead_harness import AheadDriver
from tests.worker_svc.runner.reference import OUTPUT_TOKENS, assert_greedy, make_prompts
from tests.worker_svc.runner.runner_harness import GARBAGE, GREEDY, Driver
from worker_svc.config import WorkerSettings
from worker_svc.core.batch import StateKeep
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.runner.cuda.runner import CudaRunner
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner_factory import make_runner as make_worker_runner

ModelDir = Callable[[str], Path]
PARAMS = [
    GREEDY,
    SamplingParams(temperature=0.8, top_k=40, top_p=0.95, seed=7),
    SamplingParams(temperature=1.1, seed=3),
    SamplingParams(temperature=0.7, min_p=0.02, seed=9),
]
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique", "_unique2"}
PENALTY = SamplingParams(temperature=0.0, repetition_penalty=1.3)


def make_runner(path: Path, **settings: object) -> CudaRunner:
    options = {"dtype": "float32", "num_blocks": 256, "block_size": 4, "threads": 1, "num_slots": 16}
    return CudaRunner(path, served_model_name="tiny", **(options | settings))  # type: ignore[arg-type]


def outputs_in_turn(path: Path, prompts: list[list[int]], params: list[SamplingParams]) -> list[list[int]]:
    """By `execute`, each request alone."""
    runner, outputs = make_runner(path), []
    for prompt, param in zip(prompts, params, strict=True):
        driver = Driver(runner)
        request = driver.add(prompt, OUTPUT_TOKENS, param)
        driver.run()
        outputs.append(request.output)
    return outputs


def test_greedy_output_equals_generate(model_dir: ModelDir) -> None:
    path = model_dir("tiny-qwen3")
    driver = Driver(make_runner(path))
    requests = [driver.add(prompt, OUTPUT_TOKENS) for prompt in make_prompts()]
    driver.run()
    ties = sum(
        assert_greedy(request.output, path, prompt)
        for request, prompt in zip(requests, make_prompts(), strict=True)
    )
    assert ties <= 1


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_steps_ahead_give_the_same_tokens(model_dir: ModelDir, depth: int) -> None:
    """O4."""
    path = model_dir("tiny-llama")
    prompts = make_prompts((9, 20, 33, 5))
    expected = outputs_in_turn(path, prompts, PARAMS)
    driver = AheadDriver(make_runner(path), depth)
    requests = [driver.start(p, OUTPUT_TOKENS, param) for p, param in zip(prompts, PARAMS, strict=True)]
    driver.finish_all()
    assert [request.output for request in requests] == expected
    assert driver.totals.waited == 0
    assert (driver.totals.launched_ahead > OUTPUT_TOKENS / 2) == (depth > 1)


def test_overruns_are_dropped_and_harm_nobody(model_dir: ModelDir) -> None:
    """O2: requests that end in mid-flight; the cache is so small that the next ones get their blocks and slots."""
    path = model_dir("tiny-llama")
    prompts = make_prompts((9, 20, 33, 5))
    expected = outputs_in_turn(path, prompts, PARAMS)
    runner = make_runner(path, num_blocks=64)
    driver = AheadDriver(runner)
    for _ in range(3):
        requests = []
        for i, (prompt, param) in enumerate(zip(prompts, PARAMS, strict=True)):
            stop = expected[i][3 + 4 * i] if i % 2 == 0 else None
            requests.append(driver.start(prompt, OUTPUT_TOKENS, param, stop))
        driver.finish_all()
        for i, request in enumerate(requests):
            stop = expected[i][3 + 4 * i] if i % 2 == 0 else None
            whole = expected[i] if stop is None else expected[i][: expected[i].index(stop) + 1]
            assert request.output == whole
        for request in list(driver.requests):
            driver.end(request)
        driver.reuse_blocks()
        driver.stops = {}
    assert driver.totals.overruns >= 3


def test_overruns_write_only_into_granted_blocks(model_dir: ModelDir) -> None:
    """O2."""
    path = model_dir("tiny-llama")
    prompt = make_prompts((9,))[0]
    expected = outputs_in_turn(path, [prompt], [GREEDY])[0]
    runner = make_runner(path)
    driver = AheadDriver(runner)
    stop = expected[6]
    request = driver.start(prompt, OUTPUT_TOKENS, stop=stop)
    driver.finish_all()
    assert driver.totals.overruns == 1
    others = np.setdiff1d(np.arange(runner.info.num_blocks), request.blocks)
    for layer in runner._cache.layers:
        assert (layer.keys[others] == GARBAGE).all()
        assert (layer.values[others] == GARBAGE).all()


def test_rows_that_need_the_host_make_the_step_wait(model_dir: ModelDir) -> None:
    """O5."""
    path = model_dir("tiny-llama")
    prompts, params = make_prompts((9, 20)), [GREEDY, PENALTY]
    expected = outputs_in_turn(path, prompts, params)
    driver = AheadDriver(make_runner(path))
    requests = [driver.start(p, OUTPUT_TOKENS, param) for p, param in zip(prompts, params, strict=True)]
    driver.finish_all()
    assert [request.output for request in requests] == expected
    assert driver.totals.waited > OUTPUT_TOKENS / 2


class NoWaiting(TorchDispatchMode):
    """Fails on operations that, on a GPU, make the host wait for a value or for a size."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = func.overloadpacket.__name__
        indices = args[1] if name in ("index", "index_put", "index_put_") else ()
        masks = [i for i in indices if i is not None and i.dtype in (torch.bool, torch.uint8)]
        assert name not in WAITING, name
        assert not masks, f"{name} with a mask"
        return func(*args, **(kwargs or {}))


def test_a_launch_waits_for_nothing(model_dir: ModelDir) -> None:
    driver = AheadDriver(make_runner(model_dir("tiny-llama")))
    for prompt, param in zip(make_prompts((9, 20, 33, 5)), PARAMS, strict=True):
        driver.start(prompt, OUTPUT_TOKENS, param)
    with NoWaiting():
        for _ in range(4):
            driver._launch({})
    with pytest.raises(AssertionError, match="_local_scalar_dense"), NoWaiting():
        torch.ones(3).argmax().item()
    with pytest.raises(AssertionError, match="index with a mask"), NoWaiting():
        torch.ones(3)[torch.ones(3, dtype=torch.bool)]


def test_a_launch_on_states_waits_for_nothing(model_dir: ModelDir) -> None:
    """SG12: rows that decode, one of which passes a boundary that is kept."""
    driver = Driver(make_runner(model_dir("hybrid-qwen3-5"), num_checkpoints=2))
    requests = [driver.add(prompt, 4) for prompt in make_prompts((63, 9))]
    driver.step({request.slot: request.num_prompt for request in requests})
    _, batch = driver.build({})
    driver.states.take(batch)
    row = batch.slots.tolist().index(requests[0].slot)
    batch.state_keeps.append(StateKeep(row, row + 1, 1))
    with NoWaiting():
        driver.runner.launch(batch)


def test_launching_ahead_of_nothing_is_refused(model_dir: ModelDir) -> None:
    driver = Driver(make_runner(model_dir("tiny-llama")))
    request = driver.add([5, 6, 7], 4)
    driver.step({request.slot: 3})
    _, batch = driver.build({})
    with pytest.raises(ValueError, match="no step in flight samples its token"):
        driver.runner.launch(batch, np.array([True]))
    driver.step({})
    assert len(request.output) == 2


def test_a_failed_launch_leaves_no_wrong_state(model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch) -> None:
    path = model_dir("tiny-llama")
    prompt = make_prompts((9,))[0]
    driver = Driver(make_runner(path))
    request = driver.add(prompt, OUTPUT_TOKENS)
    driver.step({request.slot: 9})
    driver.step({})
    with monkeypatch.context() as patch:
        patch.setattr(driver.runner.model.module, "forward", None)
        with pytest.raises(TypeError):
            driver.step({})
    driver.run()
    assert request.output == outputs_in_turn(path, [prompt], [GREEDY])[0]


def test_triton_without_a_gpu_is_refused(model_dir: ModelDir) -> None:
    with pytest.raises(ModelLoadError, match="attention triton needs a CUDA device, not cpu"):
        make_runner(model_dir("tiny-llama"), attention="triton")


def test_the_worker_says_why_it_does_not_start(model_dir: ModelDir) -> None:
    settings = WorkerSettings(model=model_dir("tiny-llama"), attention="triton", num_slots=4)
    with pytest.raises(StartupError, match="attention triton needs a CUDA device, not cpu"):
        make_worker_runner(settings)


def test_told_blocks_leave_one_for_scratch(model_dir: ModelDir) -> None:
    runner = make_runner(model_dir("tiny-llama"), num_blocks=20)
    assert (runner.info.num_blocks, runner._cache.num_blocks, runner.info.max_model_len) == (20, 21, 80)
