"""Threads of a step: fewer where more are not worth it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from worker_svc.runner.cpu.step_threads import FEW_TOKENS, StepThreads, choose_threads
from worker_svc.runner.torch_runner import TorchRunner

ModelDir = Callable[[str], Path]


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class Machine:
    """One on which a step takes so long with so many threads, by its own clock."""

    def __init__(self, seconds: dict[int, float]) -> None:
        self._seconds = seconds
        self._now = 0.0

    def run(self) -> None:
        self._now += self._seconds[torch.get_num_threads()]

    def clock(self) -> float:
        return self._now


@pytest.mark.parametrize(
    ("seconds", "few"),
    [({1: 0.04, 2: 0.011, 4: 0.010}, 2), ({1: 0.010, 2: 0.010}, 1), ({1: 0.04, 2: 0.02, 3: 0.005}, 3)],
)
def test_few_tokens_take_the_fewest_threads_that_are_about_as_fast(
    monkeypatch: pytest.MonkeyPatch, seconds: dict[int, float], few: int
) -> None:
    machine = Machine(seconds)
    monkeypatch.setattr("worker_svc.runner.cpu.step_threads.time.perf_counter", machine.clock)
    assert choose_threads(max(seconds), machine.run) == StepThreads(few, many=max(seconds))


def test_one_thread_is_not_measured() -> None:
    assert choose_threads(1, lambda: pytest.fail("was run")) == StepThreads(few=1, many=1)


def test_the_size_of_the_step_decides() -> None:
    threads = StepThreads(few=1, many=2)
    assert [threads.of(FEW_TOKENS), threads.of(FEW_TOKENS + 1)] == [1, 2]


def test_a_runner_limits_torch_for_each_step(model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch) -> None:
    few = StepThreads(few=1, many=2)
    monkeypatch.setattr("worker_svc.runner.torch_runner.choose_threads", lambda most, run: few)
    runner = TorchRunner(model_dir("tiny-llama"), served_model_name="tiny", num_blocks=8, threads=2)
    for num_tokens, expected in ((1, 1), (FEW_TOKENS + 1, 2), (2, 1)):
        runner._limit_threads(num_tokens)
        assert torch.get_num_threads() == expected
