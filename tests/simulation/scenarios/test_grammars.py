"""Requests that wait for their grammar."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.named import INFLIGHT, request, simulate
from tests.simulation.scenario import Simulation
from tests.simulation.session import Session
from worker_svc.core.step import RequestRef


def constrained(name: str, num_prompt: int, max_tokens: int, first_token: int = 0) -> Session:
    """A request whose grammar has to be compiled first."""
    session = request(name, num_prompt, max_tokens, first_token)
    session.has_grammar = True
    return session


def compile_in(simulation: Simulation, seconds: float) -> list[int]:
    """Every grammar takes so long. The slots for which one was compiled are in the list then."""
    node, compiled = simulation.workers[0], []

    def compile_one(slot: int, ref: RequestRef) -> None:
        compiled.append(slot)
        simulation.world.at(seconds, lambda: node._compiled(node.incarnation, slot, ref, False))

    node._compile = compile_one  # type: ignore[method-assign]
    return compiled


@INFLIGHT
def test_others_run_while_a_grammar_is_compiled(inflight: int) -> None:
    simulation = simulate(inflight, max_num_seqs=2)
    compile_in(simulation, seconds=3.0)
    waits = simulation.plan(constrained("waits", 8, 10), at=1.5)
    others = [simulation.plan(request(f"r{n}", 8, 10, 100 * n), at=1.5) for n in range(1, 4)]
    done_before: list[bool] = []

    def watch(after: Callable[[], None] = simulation.world.after_event) -> None:
        after()
        if waits.output and not done_before:
            done_before.append(all(session.is_done for session in others))

    simulation.world.after_event = watch
    simulation.run()
    assert done_before == [True] and len(waits.output) == 10


@INFLIGHT
@pytest.mark.parametrize(
    "event", ["cancel", "resubmit", "break", "kill scheduler", "kill worker", "fail", "break and fail"]
)
def test_while_a_grammar_is_compiled(inflight: int, event: str) -> None:
    """Slots are few, so that one given away while its grammar is compiled is soon another's."""
    failures = 1.0 if "fail" in event else 0.0
    simulation = simulate(inflight, num_slots=4, compile_s=0.4, grammar_failures=failures)
    simulation.faults = event in ("break", "kill scheduler", "kill worker", "break and fail")
    waits = [simulation.plan(constrained(f"g{n}", 8, 10, 100 * n), at=1.5) for n in range(5)]
    others = [simulation.plan(request(f"r{n}", 8, 30, 50 + 100 * n), at=1.5 + 0.1 * n) for n in range(4)]
    if event in ("cancel", "resubmit"):
        simulation.world.at(
            1.6, lambda: [simulation.frontend.cancel(session) for session in waits[:2]] and None
        )
    if event == "resubmit":
        for number in range(2):
            simulation.plan(constrained(f"g{number}", 9, 6, 300 * number), at=1.62)
    if "break" in event:
        for at in (1.55, 1.9):
            simulation.world.at(
                at, lambda: simulation.workers[0].link and simulation.workers[0].link.break_()
            )
    if event == "kill scheduler":
        simulation.world.at(1.6, simulation.scheduler.kill)
        simulation.world.at(1.7, simulation.scheduler.restart)
    if event == "kill worker":
        simulation.world.at(1.6, simulation.workers[0].kill)
        simulation.world.at(1.7, simulation.workers[0].restart)
    simulation.run()
    assert all(session.ends == ["FINISH_REASON_LENGTH"] for session in others)
    gone = 2 if event in ("cancel", "resubmit") else 0
    expected = "FINISH_REASON_ERROR" if failures else "FINISH_REASON_LENGTH"
    assert [session.ends for session in waits[gone:]] == [[expected]] * (5 - gone)
    assert simulation.scheduler.num_divergences == 0


@INFLIGHT
def test_a_constrained_request_is_preempted_and_its_grammar_compiled_once(inflight: int) -> None:
    """G4."""
    simulation = simulate(inflight, num_blocks=14)
    compiled = compile_in(simulation, seconds=0.05)
    for number in range(4):
        simulation.plan(constrained(f"g{number}", 8, 30, 100 * number), at=1.5)
    assert simulation.run().num_preemptions > 0
    assert len(compiled) == 4
