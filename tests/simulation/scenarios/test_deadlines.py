"""Requests that go by when their first token is due, through a whole ring."""

from __future__ import annotations

import pytest

from tests.simulation.named import INFLIGHT, request, simulate
from tests.simulation.scenario import Simulation
from tests.simulation.session import Session

HASTY, SOON, PATIENT = 0, 1, 2
TARGETS = f"{HASTY}:10,{SOON}:30000,{PATIENT}:60000"


def due(name: str, priority: int, max_tokens: int, first_token: int) -> Session:
    """A request of a class with a target."""
    session = request(name, 6, max_tokens, first_token)
    session.priority = priority
    return session


def watch(simulation: Simulation, sessions: list[Session]) -> list[str]:
    """Who has had a first token, in order; filled while the simulation runs."""
    seen: list[str] = []

    def look() -> None:
        seen.extend(s.request_id for s in sessions if s.output and s.request_id not in seen)
        if len(seen) < len(sessions):
            simulation.world.at(0.005, look)

    simulation.world.at(1.5, look)
    return seen


@INFLIGHT
@pytest.mark.parametrize("drafts", [0, 4])
def test_a_request_whose_deadline_has_passed_makes_nobody_late_and_ends_all_the_same(
    inflight: int, drafts: int
) -> None:
    simulation = simulate(
        inflight, drafts, acceptance=0.0, policy="deadline", ttft_targets=TARGETS, max_num_seqs=1
    )
    runner, late = due("runner", HASTY, 50, 100), due("late", HASTY, 4, 200)
    patient, soon = due("patient", PATIENT, 4, 300), due("soon", SOON, 4, 400)
    sessions = [runner, late, patient, soon]
    for number, session in enumerate(sessions):
        simulation.plan(session, at=1.5 + 0.01 * number)
    order = watch(simulation, sessions)
    simulation.run()
    assert order == ["runner", "soon", "patient", "late"]
    assert [len(session.output) for session in sessions] == [50, 4, 4, 4]
    deadlines = simulation.scheduler.core.queues.deadlines
    assert deadlines.missed[HASTY] >= 1
    assert (deadlines.met[SOON], deadlines.met[PATIENT]) == (1, 1)


@INFLIGHT
def test_deadlines_of_requests_that_are_placed_again_after_a_loss_are_counted_once(inflight: int) -> None:
    simulation = simulate(inflight, policy="deadline", ttft_targets=f"{SOON}:60000", worker_grace_s=0.1)
    sessions = [due(f"r{number}", SOON, 40, 100 * number) for number in range(3)]
    for session in sessions:
        simulation.plan(session, at=1.5)
    worker = simulation.workers[0]

    def break_down() -> None:
        if all(session.output for session in sessions):
            worker.kill()
            simulation.world.at(0.5, worker.restart)
        else:
            simulation.world.at(0.01, break_down)

    simulation.world.at(1.6, break_down)
    outcome = simulation.run()
    assert outcome.num_attempts > outcome.num_requests
    assert simulation.scheduler.core.queues.deadlines.met == {SOON: 3}
    assert not simulation.scheduler.core.queues.deadlines.missed
