"""Requests of suspended classes: they wait, or are paused with their blocks, and end as if nothing had been."""

from __future__ import annotations

import pytest

from tests.simulation.named import INFLIGHT, preemptions, request, simulate
from tests.simulation.scenario import Simulation
from tests.simulation.session import Session

ON_S, OFF_S = 2.0, 6.0


def low(name: str, num_prompt: int, max_tokens: int, first_token: int = 0) -> Session:
    """A request of class 2."""
    session = request(name, num_prompt, max_tokens, first_token)
    session.priority = 2
    return session


def suspend(simulation: Simulation, at: float = ON_S, until: float = OFF_S, level: int = 1) -> None:
    """Safe mode by an operator for some time."""

    def turn(on: bool) -> None:
        node = simulation.scheduler
        node.dirty = True
        if on:
            node.core.set_safe_mode(level, simulation.world.now)
        else:
            node.core.lift_safe_mode(simulation.world.now)
        node.pump()

    simulation.world.at(at, lambda: turn(True))
    simulation.world.at(until, lambda: turn(False))


def look(simulation: Simulation, session: Session, at: float) -> list[int]:
    """How many tokens the client has at that time, once that time has come."""
    seen: list[int] = []
    simulation.world.at(at, lambda: seen.append(len(session.output)))
    return seen


@INFLIGHT
@pytest.mark.parametrize("drafts", [0, 4])
def test_a_running_request_is_paused_and_makes_the_same_tokens_after(inflight: int, drafts: int) -> None:
    """P3, Y1."""
    simulation = simulate(inflight, drafts, policy="priority", aging_s=0.0)
    slow, top = low("slow", 6, 50), request("top", 6, 10, 500)
    simulation.plan(slow, at=1.9)
    simulation.plan(top, at=3.0)
    suspend(simulation)
    first, last = look(simulation, slow, 2.5), look(simulation, slow, 5.9)
    top_tokens = look(simulation, top, 5.9)
    simulation.run()
    assert 0 < first[0] == last[0] < 50
    assert top_tokens == [10], "the class that is kept goes on"
    assert len(slow.output) == 50
    assert preemptions(simulation) == 0, "its blocks were not needed"


@INFLIGHT
def test_a_new_request_waits_until_it_is_lifted(inflight: int) -> None:
    simulation = simulate(inflight, policy="priority", aging_s=0.1)
    late, top = low("late", 6, 10), request("top", 6, 10, 500)
    simulation.plan(late, at=2.5)
    simulation.plan(top, at=3.0)
    suspend(simulation)
    before, top_tokens = look(simulation, late, 5.9), look(simulation, top, 5.9)
    simulation.run()
    assert before == [0], "aging lifts nobody over the level"
    assert top_tokens == [10]
    assert len(late.output) == 10


@INFLIGHT
def test_paused_requests_give_up_their_blocks_when_they_are_needed(inflight: int) -> None:
    simulation = simulate(inflight, num_blocks=12, policy="priority", max_num_seqs=2, aging_s=0.0)
    paused = [low(f"low{n}", 14, 20, 100 * n) for n in range(2)]
    top = [request(f"top{n}", 16, 18, 500 + 100 * n) for n in range(2)]
    for session in paused:
        simulation.plan(session, at=1.9)
    for session in top:
        simulation.plan(session, at=3.0)
    suspend(simulation)
    done = [look(simulation, session, 5.9) for session in top]
    simulation.run()
    assert done == [[18], [18]], "those that are kept end meanwhile"
    assert preemptions(simulation) > 0
    assert all(len(session.output) == 20 for session in paused)


@INFLIGHT
def test_a_suspended_request_can_be_cancelled_and_ends_once(inflight: int) -> None:
    simulation = simulate(inflight, policy="priority")
    runs, waits = low("runs", 6, 50), low("waits", 6, 10, 500)
    simulation.plan(runs, at=1.9)
    simulation.plan(waits, at=2.5)
    suspend(simulation)
    for session in (runs, waits):
        simulation.world.at(4.0, lambda s=session: simulation.frontend.cancel(s))  # type: ignore[misc]
    simulation.run()
    assert runs.ends == waits.ends == ["cancelled"]


@INFLIGHT
@pytest.mark.parametrize("lost", ["worker", "link"])
def test_a_request_stays_suspended_when_its_worker_or_the_link_is_lost(inflight: int, lost: str) -> None:
    """A worker that is lost takes its paused requests with it: they are submitted anew, and wait."""
    simulation = simulate(inflight, policy="priority")
    simulation.faults = True
    slow = simulation.plan(low("slow", 6, 50), at=1.9)
    suspend(simulation)

    def lose() -> None:
        if lost == "worker":
            simulation.workers[0].kill()
            simulation.world.at(0.2, simulation.workers[0].restart)
        else:
            link = simulation.workers[0].link
            assert link is not None
            link.break_()

    simulation.world.at(3.0, lose)
    before, after = look(simulation, slow, 2.9), look(simulation, slow, 5.9)
    simulation.run()
    assert before == after
    assert (slow.num_attempts > 1) == (lost == "worker")
    assert slow.ends == ["FINISH_REASON_LENGTH"] and len(slow.output) == 50


@INFLIGHT
def test_a_new_scheduler_knows_of_no_safe_mode_and_lets_paused_requests_go_on(inflight: int) -> None:
    """P6."""
    simulation = simulate(inflight, policy="priority")
    simulation.faults = True
    slow = simulation.plan(low("slow", 6, 50), at=1.9)
    suspend(simulation, until=20.0)
    simulation.world.at(3.0, simulation.scheduler.kill)
    simulation.world.at(3.2, simulation.scheduler.restart)
    before = look(simulation, slow, 2.9)
    simulation.run()
    assert before[0] < 50 and simulation.world.now < 20.0
    assert slow.ends == ["FINISH_REASON_LENGTH"] and slow.num_attempts == 1


@INFLIGHT
def test_a_client_that_stops_reading_meanwhile_is_paused_until_both_are_over(inflight: int) -> None:
    simulation = simulate(inflight, policy="priority")
    slow = simulation.plan(low("slow", 6, 50), at=1.9)
    suspend(simulation, until=4.0)
    simulation.world.at(3.0, lambda: simulation.frontend.set_paused(slow, True))
    simulation.world.at(6.0, lambda: simulation.frontend.set_paused(slow, False))
    first, last = look(simulation, slow, 2.9), look(simulation, slow, 5.9)
    simulation.run()
    assert first == last
    assert len(slow.output) == 50


@INFLIGHT
def test_a_suspended_request_whose_grammar_is_ready_starts_when_it_is_lifted(inflight: int) -> None:
    simulation = simulate(inflight, policy="priority", compile_s=3.0)
    slow = low("slow", 6, 10)
    slow.has_grammar = True
    simulation.plan(slow, at=ON_S - 0.05)
    suspend(simulation)
    before = look(simulation, slow, 5.9)
    simulation.run()
    assert before == [0]
    assert len(slow.output) == 10
