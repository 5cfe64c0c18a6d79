"""Workers whose steps run ahead of their hosts: whatever happens, clients see what they see of workers that run them in
turn."""

from __future__ import annotations

import random

import pytest

from tests.simulation import worker_node
from tests.simulation.ahead import AheadSimRunner, EarlySimRunner
from tests.simulation.hunts import Hunt, in_scenarios
from tests.simulation.named import request, simulate
from tests.simulation.random_scenario import Scenario
from tests.simulation.session import Session
from worker_svc.core.running_step import RunningStep
from worker_svc.core.step import StepDelta
from worker_svc.core.worker_core import WorkerCore

SEEDS = 14
SEEDS_PER_TEST = 7


class AheadScenario(Scenario):
    """A scenario on workers that run ahead. Some requests have a penalty, which the device alone cannot serve; on some
    workers launched steps are lost."""

    def __init__(self, seed: int, inflight: int, faults: bool = True, num_state_versions: int = 0) -> None:
        self.seed, self.kinds = seed, random.Random(f"kinds {seed}")
        super().__init__(
            seed, inflight, 0, faults=faults, runs_ahead=True, num_state_versions=num_state_versions
        )

    def _plan(self, session: Session, at: float) -> None:
        longest = len(session.prompt) + session.max_tokens
        if self.setup.vocab_size > longest and session.pooling is None:
            session.never_repeats = self.seed % 2 == 0 and self.kinds.random() < 0.2
        super()._plan(session, at)

    def run_ahead(self) -> int:
        """Runs to the end. Returns how many rows ran ahead on workers that live."""
        runners = [node.runner for node in self.workers if isinstance(node.runner, AheadSimRunner)]
        assert len(runners) == len(self.workers)
        for runner in runners:
            runner.fail_every = self.kinds.choice((0, 0, 5))
        self.run()
        return sum(runner.num_ahead for runner in runners)


@pytest.mark.sampled
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
@pytest.mark.parametrize("inflight", [2, 4])
def test_every_scenario_keeps_every_rule(first: int, inflight: int) -> None:
    """O1, O4."""
    run_scenarios(first, inflight)


@pytest.mark.sampled
@pytest.mark.parametrize("inflight", [2, 4])
def test_every_scenario_keeps_every_rule_where_batches_run_at_once(
    inflight: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_node, "AheadSimRunner", EarlySimRunner)
    run_scenarios(0, inflight)


def run_scenarios(first: int, inflight: int) -> None:
    num_ahead = 0
    for seed in range(first, first + SEEDS_PER_TEST):
        try:
            num_ahead += AheadScenario(seed, inflight).run_ahead()
        except Exception as error:
            error.add_note(f"reproduce with AheadScenario({seed}, {inflight}).run_ahead()")
            raise
    assert num_ahead > 100, "the scenarios have become too easy"


@pytest.mark.sampled
@pytest.mark.parametrize("inflight", [2, 4])
def test_steady_decoding_runs_ahead(inflight: int) -> None:
    """O1, O3: of four requests of 30 tokens most tokens are sampled before the one before them is on the host, and
    none behind the last: that a request reaches its length is known beforehand."""
    simulation = simulate(inflight, num_blocks=200, runs_ahead=True)
    for number in range(4):
        simulation.plan(request(f"r{number}", 8, 30, 100 * number), at=1.5)
    simulation.run()
    runner = simulation.workers[0].runner
    assert isinstance(runner, AheadSimRunner)
    assert runner.num_ahead > 4 * 30 / 2
    assert runner.num_decode_rows == 4 * 29


def never_waits(patch: pytest.MonkeyPatch) -> None:
    """Applies every delta at once."""
    patch.setattr(WorkerCore, "has_to_wait", lambda core, delta: False)


def counts_overruns(patch: pytest.MonkeyPatch) -> None:
    """Takes the tokens of rows whose request has ended."""
    patch.setattr(WorkerCore, "_drop_overruns", lambda core, step: {})


def forgets_what_is_in_flight(patch: pytest.MonkeyPatch) -> None:
    """Runs the tokens in flight as if they were known."""
    apply = WorkerCore.apply

    def apply_blindly(core: WorkerCore, delta: StepDelta) -> RunningStep:
        step = apply(core, delta)
        step.ahead[:] = False
        return step

    patch.setattr(WorkerCore, "apply", apply_blindly)


def run_steady(seed: int) -> None:
    """A scenario without faults, in which nothing may diverge."""
    scenario = AheadScenario(seed, 2, faults=False)
    scenario.run_ahead()
    assert scenario.scheduler.num_divergences == 0


HUNTS = [
    in_scenarios(plant, "ahead", run_steady, Exception)
    for plant in (never_waits, counts_overruns, forgets_what_is_in_flight)
]


@pytest.mark.sampled
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hunt", HUNTS, ids=str)
def test_a_planted_bug_is_found(hunt: Hunt, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt.run(monkeypatch)
