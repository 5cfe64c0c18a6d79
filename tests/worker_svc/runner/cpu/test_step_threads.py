"""Threads of a step: fewer where more are not worth it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from worker_svc.runner.cpu.step_threads import (
    FEW_TOKENS,
    LATEST,
    SOONEST,
    StepThreads,
    choose_threads,
)
from worker_svc.runner.torch_runner import TorchRunner

ModelDir = Callable[[str], Path]


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class Machine:
    """One on which a step takes so long with so many threads, by its own clock."""

    def __init__(self, seconds: dict[int, float], busy_until: float = 0.0) -> None:
        self._seconds = seconds
        self._busy_until = busy_until
        self._now = 0.0

    def run(self) -> None:
        self._now += self._seconds[torch.get_num_threads()] * (10 if self._now < self._busy_until else 1)

    def clock(self) -> float:
        return self._now


@pytest.mark.parametrize(
    ("seconds", "few"),
    [({1: 0.04, 2: 0.0104, 4: 0.010}, 2), ({1: 0.010, 2: 0.010}, 1), ({1: 0.04, 2: 0.02, 3: 0.005}, 3)],
)
def test_few_tokens_take_the_fewest_threads_that_are_about_as_fast(
    monkeypatch: pytest.MonkeyPatch, seconds: dict[int, float], few: int
) -> None:
    machine = Machine(seconds)
    monkeypatch.setattr("worker_svc.runner.cpu.step_threads.time.perf_counter", machine.clock)
    chosen = choose_threads(max(seconds), machine.run)
    assert (chosen.few, chosen.many) == (few, max(seconds))


def test_one_thread_is_not_measured() -> None:
    chosen = choose_threads(1, lambda: pytest.fail("was run"))
    assert (chosen.few, chosen.many) == (1, 1)


def test_numbers_of_threads_are_measured_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first one has the whole of a moment in which the machine does something else."""
    machine = Machine({1: 0.01, 2: 0.01}, busy_until=0.7)
    monkeypatch.setattr("worker_svc.runner.cpu.step_threads.time.perf_counter", machine.clock)
    assert choose_threads(2, machine.run).few == 1


def test_the_size_of_the_step_decides() -> None:
    threads = StepThreads([1, 2], few=1)
    assert [threads.of(FEW_TOKENS), threads.of(FEW_TOKENS + 1)] == [1, 2]


def run_steps(threads: StepThreads, seconds: dict[int, float], count: int, num_tokens: int = 1) -> list[int]:
    """Threads of each of so many steps."""
    used = []
    for _ in range(count):
        used.append(threads.of(num_tokens))
        threads.took(num_tokens, seconds[used[-1]])
    return used


@pytest.mark.parametrize(
    ("seconds", "begins", "ends"),
    [
        ({1: 0.024, 2: 0.018}, 1, 2),
        ({1: 0.0186, 2: 0.018}, 2, 1),
        ({1: 0.0186, 2: 0.018}, 1, 1),
        ({1: 0.040, 2: 0.030, 4: 0.020, 8: 0.030}, 8, 4),
        ({1: 0.040, 2: 0.030, 4: 0.020, 8: 0.030}, 1, 4),
    ],
)
def test_what_was_found_at_load_is_corrected(seconds: dict[int, float], begins: int, ends: int) -> None:
    threads = StepThreads(list(seconds), few=begins)
    run_steps(threads, seconds, 10 * SOONEST)
    assert threads.few == ends


def test_trials_become_rare_where_they_change_nothing() -> None:
    used = run_steps(StepThreads([1, 2], few=2), {1: 0.04, 2: 0.02}, 20 * LATEST)
    assert set(used) == {1, 2}
    assert used.count(1) < 0.005 * len(used)


def test_steps_of_many_tokens_are_no_part_of_it() -> None:
    threads = StepThreads([1, 2], few=1)
    assert run_steps(threads, {2: 0.001}, 10 * SOONEST, FEW_TOKENS + 1) == [2] * 10 * SOONEST
    assert threads.few == 1


def test_a_runner_limits_torch_for_each_step(model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch) -> None:
    few = StepThreads([1, 2], few=1)
    monkeypatch.setattr("worker_svc.runner.torch_runner.choose_threads", lambda most, run: few)
    runner = TorchRunner(model_dir("tiny-llama"), served_model_name="tiny", num_blocks=8, threads=2)
    for num_tokens, expected in ((1, 1), (FEW_TOKENS + 1, 2), (2, 1)):
        with runner._threads.around_step(num_tokens):
            assert torch.get_num_threads() == expected
