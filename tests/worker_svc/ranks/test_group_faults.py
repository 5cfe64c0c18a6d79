"""What becomes of a group when a rank fails, dies or is stopped (RK3 to RK5)."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from tests.pairs import in_soak
from tests.worker_svc.ranks.groups import group, settings_for
from tests.worker_svc.runner.runner_harness import Driver
from tools.make_random_model import make_model
from worker_svc.core.batch import Batch, QuerySpan
from worker_svc.core.faults.isolation import RunnerBrokenError, execute_isolated
from worker_svc.ranks import leader
from worker_svc.ranks.errors import GroupBrokenError
from worker_svc.ranks.first_failure import FirstFailure
from worker_svc.ranks.runners import LeadingRunner
from worker_svc.runner import torch_runner
from worker_svc.runner.sampling import prompt_results

pytestmark = pytest.mark.timeout(120)
LIMIT_S = 5.0
"""Far above what a death takes to be heard of, far below what a hang would."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model("tiny-llama", tmp_path_factory.mktemp("model"), seed=1)


@pytest.fixture
def collectives() -> str:
    return "auto"


@pytest.fixture
def runner(path: Path, collectives: str) -> Iterator[LeadingRunner]:
    with group(path, collectives=collectives) as (runner, _):
        yield runner


@pytest.fixture(scope="module")
def lasting(path: Path) -> Iterator[LeadingRunner]:
    """For tests that do not end it."""
    with group(path) as (runner, _):
        yield runner


def make_batch(runner: LeadingRunner, prompts: list[list[int]]) -> Batch:
    driver = Driver(runner)
    requests = [driver.add(prompt, 4) for prompt in prompts]
    _, batch = driver.build({request.slot: len(request.tokens) for request in requests})
    return batch


def other(runner: LeadingRunner) -> int:
    (peer,) = runner._leader._peers
    return peer.pid


def ends_in_time(act: Callable[[], object]) -> str:
    begun = time.monotonic()
    with pytest.raises(RunnerBrokenError) as caught:
        act()
    assert time.monotonic() - begun < LIMIT_S
    return str(caught.value)


def test_what_all_ranks_fail_in_fails_alone(lasting: LeadingRunner) -> None:
    """RK4: a token that no embedding has. Both see it ahead of the first sum, and the others of the batch go on."""
    runner = lasting
    batch = make_batch(runner, [[5, 6, 7], [8, 9], [10, 11, 12]])
    wanted = execute_isolated(runner, batch)[0].token_ids
    batch.token_ids[batch.query_starts[1]] = runner.info.vocab_size + 5
    sampled, failed = execute_isolated(runner, batch)
    assert list(failed) == [1]
    assert sampled.token_ids[[0, 2]].tolist() == wanted[[0, 2]].tolist()
    assert runner.failure is None


def fail_for(slot: int, work: Callable[..., Any]) -> Callable[..., Any]:
    """`work`, which fails for each batch among its arguments that has this slot."""

    def run(*arguments: Any) -> Any:
        batch = next(each for each in arguments if isinstance(each, Batch))
        if slot in batch.slots:
            raise ArithmeticError("at rank 0 alone")
        return work(*arguments)

    return run


@pytest.mark.parametrize("scores", [False, True])
def test_what_sampling_fails_in_fails_alone(
    lasting: LeadingRunner, monkeypatch: pytest.MonkeyPatch, scores: bool
) -> None:
    """RK4: rank 0 alone samples, behind the last sum, so that no other rank waits for it."""
    runner = lasting
    batch = make_batch(runner, [[5, 6, 7], [8, 9], [10, 11, 12]])
    if scores:
        batch.scored = [
            QuerySpan(row, int(batch.query_starts[row]), int(batch.query_starts[row]) + 1) for row in range(3)
        ]
        batch.sampling.num_prompt_logprobs[batch.slots] = 1
    wanted = execute_isolated(runner, batch)[0]
    monkeypatch.setattr(torch_runner, "sample", fail_for(int(batch.slots[1]), torch_runner.sample))
    sampled, failed = execute_isolated(runner, batch)
    assert failed == {1: "ArithmeticError: at rank 0 alone"}
    assert sampled.token_ids[[0, 2]].tolist() == wanted.token_ids[[0, 2]].tolist()
    assert sampled.prompt_logprobs == {row: each for row, each in wanted.prompt_logprobs.items() if row != 1}
    assert runner.failure is None


def test_what_reading_prompts_fails_in_fails_alone(
    lasting: LeadingRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RK4: logits of prompts are summed a part at a time, and what one part fails in keeps no other from being made."""
    runner = lasting
    batch = make_batch(runner, [[5, 6, 7], [8, 9, 10]])
    starts = batch.query_starts.tolist()
    batch.scored = [QuerySpan(row, starts[row], starts[row] + 2) for row in range(2)]
    batch.sampling.num_prompt_logprobs[batch.slots] = 1
    wanted = execute_isolated(runner, batch)[0]
    culprit = batch.tokens[batch.slots[1], 1]
    read = prompt_results.token_logprobs

    def fail(logits: torch.Tensor, targets: Any, *others: Any) -> Any:
        if culprit in targets:
            raise ArithmeticError("at rank 0 alone")
        return read(logits, targets, *others)

    monkeypatch.setattr(prompt_results, "token_logprobs", fail)
    sampled, failed = execute_isolated(runner, batch)
    assert failed == {1: "ArithmeticError: at rank 0 alone"}
    assert sampled.prompt_logprobs == {0: wanted.prompt_logprobs[0]}
    assert runner.failure is None
    head = CountingHead(runner.info.vocab_size)
    monkeypatch.setattr(prompt_results, "LOGITS_AT_ONCE", 1)  # a part for each token
    alone = FirstFailure()
    captured: Any = SimpleNamespace(hidden=torch.zeros(5, 1))
    assert prompt_results.score_prompts(head, captured, batch, alone) == {}  # type: ignore[arg-type]
    assert head.num_parts == 4
    with pytest.raises(ArithmeticError):
        alone.check()


class CountingHead:
    """Counts the parts whose logits are asked for: where a head is divided, each is a collective."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size, self.num_parts = vocab_size, 0

    def logits(self, captured: object, queries: torch.Tensor) -> torch.Tensor:
        self.num_parts += 1
        return torch.zeros(len(queries), self.vocab_size)


def test_masks_that_cannot_be_begun_fail_alone(lasting: LeadingRunner) -> None:
    """RK4: before the other ranks are told of the batch. No thread can be had for them, for a moment."""

    class Masks:
        num_failures = 0

        def start(self) -> None:
            self.num_failures += 1
            raise RuntimeError("can't start new thread")

    runner = lasting
    batch = make_batch(runner, [[5, 6, 7]])
    masks: Any = Masks()
    batch.masks = masks
    assert execute_isolated(runner, batch)[1] == {0: "RuntimeError: can't start new thread"}
    assert masks.num_failures and runner.failure is None


@pytest.mark.parametrize("collectives", ["shared-memory", *in_soak("gloo")])
def test_a_rank_that_fails_alone_ends_the_group(
    runner: LeadingRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one waits for us in a sum that we never come to."""
    batch = make_batch(runner, [[5, 6, 7]])

    def fail(*_: object) -> None:
        raise ArithmeticError("here alone")

    monkeypatch.setattr(runner, "_forward", fail)
    assert "has not made call" in ends_in_time(lambda: execute_isolated(runner, batch))
    assert isinstance(runner.failure, GroupBrokenError)


def test_a_call_that_does_not_get_on_ends_the_group(
    runner: LeadingRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though all ranks say that they are there. A step that adds up on its way may take as long as it takes."""
    batch = make_batch(runner, [[5, 6, 7]])
    runner.execute(batch)
    monkeypatch.setattr(leader, "HUNG_S", 0.6)
    monkeypatch.setattr(leader, "HUNG_FACTOR", 1.0)
    forward = runner._forward

    def slow(seconds: float) -> Callable[..., object]:
        def run(*inputs: object) -> object:
            time.sleep(seconds)
            return forward(*inputs)  # type: ignore[arg-type]

        return run

    monkeypatch.setattr(runner, "_forward", slow(0.2))
    runner.execute(batch)
    assert runner.failure is None
    monkeypatch.setattr(runner, "_forward", slow(2.5))
    assert "has not got on" in ends_in_time(lambda: execute_isolated(runner, batch))


def test_other_numbers_end_the_group(runner: LeadingRunner) -> None:
    """A bit of a norm's weight at one rank, and hidden states differ."""
    batch = make_batch(runner, [[5, 6, 7]])
    runner.execute(batch)
    with torch.no_grad():
        runner.model.module.model.norm.weight[3] += 1e-3
    assert "has done something else" in ends_in_time(lambda: runner.execute(batch))


@pytest.mark.parametrize("number", [signal.SIGSTOP, *in_soak(signal.SIGKILL)])
def test_a_rank_that_dies_or_is_stopped_between_steps_is_noticed(
    runner: LeadingRunner, number: signal.Signals
) -> None:
    os.kill(other(runner), number)
    end = time.monotonic() + LIMIT_S
    while runner.failure is None:
        assert time.monotonic() < end, "nobody noticed"
        time.sleep(0.02)
    assert str(other(runner)) in str(runner.failure)
    ends_in_time(runner.check)


@pytest.mark.parametrize("collectives", ["shared-memory", *in_soak("gloo")])
@pytest.mark.parametrize("number", [signal.SIGKILL, *in_soak(signal.SIGSTOP)])
def test_a_rank_that_dies_or_is_stopped_within_steps_ends_them(
    runner: LeadingRunner, number: signal.Signals
) -> None:
    batch = make_batch(runner, [[5, 6, 7], list(range(100, 400))])
    runner.execute(batch)

    def work() -> None:
        for count in range(10_000):
            if count == 5:
                os.kill(other(runner), number)
            execute_isolated(runner, batch)

    ends_in_time(work)


def test_ranks_end_with_the_first(path: Path) -> None:
    with group(path) as (runner, _):
        pid = other(runner)
        (peer,) = runner._leader._peers
        peer._told.shutdown(socket.SHUT_RDWR)  # as a process that is gone does
        peer._process.wait(LIMIT_S)
    assert pid > 0 and peer._process.returncode is not None


def test_a_part_that_cannot_be_loaded_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first error is another rank's, while ours waits for it."""
    from signalbox.errors import StartupError  # noqa: PLC0415
    from worker_svc.runner.split import plan  # noqa: PLC0415

    monkeypatch.setattr(plan, "DIVIDED", frozenset())
    with pytest.raises(StartupError, match="model_type 'llama' is not served by several ranks"), group(path):
        pass


def test_batches_of_many_steps_are_the_same_at_both_ends(lasting: LeadingRunner) -> None:
    """RK2: block tables go as differences; rows that come and go, in any order."""
    random = np.random.default_rng(3)
    runner = lasting
    driver = Driver(runner)
    for _ in range(3):
        requests = [driver.add(random.integers(3, 500, n).tolist(), 8) for n in (3, 20, 9)]
        driver.run(chunk_size=7)
    assert all(len(request.output) == 8 for request in requests)
    assert runner.failure is None


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("--collectives does not go with --device", {"device": "cuda", "collectives": "gloo"}),
        ("--hand-off does not go with --device", {"device": "cuda", "hand_off": True}),
        ("--runner does not go with --tensor-parallel", {"runner": "sim"}),
    ],
)
def test_what_several_ranks_do_not_serve_is_refused(
    path: Path, reason: str, changes: dict[str, object]
) -> None:
    """RK9: by the name of the setting, ahead of any loading."""
    with pytest.raises(ValidationError, match=reason):
        settings_for(path, **changes)
