"""Random rings: the real shells of all services on a virtual clock and a virtual network. Every accepted request of a
living frontend ends in exactly one terminal event and with the tokens of an undisturbed run, errors come only where the
plot allows them, and nothing is left at rest (docs/liveness.md; docs/design.md)."""

from __future__ import annotations

import asyncio
import gc
import inspect
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from scheduler_svc.core.liveness import judgement
from scheduler_svc.core.liveness.judgement import rows_of_step
from tests.simulation.counts import num_rings
from tests.simulation.ring.checks import Checks
from tests.simulation.ring.clock import Process, World
from tests.simulation.ring.hunt import Found, explain, shrink, try_plot
from tests.simulation.ring.profiles import PROFILES
from tests.simulation.ring.ring import Outcome, Ring
from tests.simulation.ring.scenario import CALM, draw
from tests.simulation.ring.setup import Fault

RANGES = [(profile, 1) for profile in PROFILES] + [("any", 101), ("any", 201)]
"""Profiles and first seeds."""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("profile", "first"), RANGES)
def test_random_rings(profile: str, first: int) -> None:
    """Z1, J1, Y1."""
    run_rings(profile, range(first, first + num_rings(profile)))


@pytest.mark.parametrize("profile", PROFILES)
def test_a_ring_of_every_profile(profile: str) -> None:
    """Z1, J1, Y1: the seed ahead of those."""
    run_rings(profile, range(1))


def run_rings(profile: str, seeds: range) -> None:
    """Fails with the shrunk trace of the first scenario that breaks a rule."""
    started, outcomes = time.perf_counter(), list[Outcome]()
    for seed in seeds:
        outcome = try_plot(draw(seed, PROFILES[profile]))
        if isinstance(outcome, Found):
            pytest.fail(f"{outcome}\n{explain(shrink(outcome))}")
        outcomes.append(outcome)
    gc.collect()
    events = sum(outcome.num_events for outcome in outcomes)
    print(f"{len(outcomes)} rings, {events} events in {time.perf_counter() - started:.1f} s")
    assert sum(outcome.num_requests for outcome in outcomes) >= len(outcomes), "they have become too easy"


@pytest.mark.sampled
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("profile", "word"),
    [
        ("poison", "crashed or hung while computing it"),
        ("poison", "the model fails"),
        ("nan", "not finite"),
        ("limits", "max_queued"),
    ],
)
def test_what_is_planned_happens(profile: str, word: str) -> None:
    """A token that kills nobody, or a limit that nobody meets, would let every scenario pass."""
    errors = list[str]()
    for seed in range(10):
        outcome = try_plot(draw(seed, PROFILES[profile]))
        assert isinstance(outcome, Outcome), outcome
        errors += outcome.errors
        if any(word in error for error in errors):
            return
    pytest.fail(f"nothing was told {word!r}: {errors}")


@pytest.mark.sampled
@pytest.mark.timeout(120)
def test_a_poison_costs_a_third_worker_where_nobody_is_told_which_step_ran(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S1: as long as the oldest step without a report was thought to be the one that crashed."""
    monkeypatch.setattr(judgement, "rows_of_step", lambda worker, step_id=0: rows_of_step(worker))
    for drawn in (draw(seed, PROFILES["poison"]) for seed in range(120)):
        plot = replace(drawn, faults=(), setup=replace(drawn.setup, guardians=1.0))
        if any(planned.request.is_poison for planned in plot.requests):
            found = try_plot(plot)
            if isinstance(found, Found):
                assert "a poison cost" in str(found)
                return
    pytest.fail("no scenario has found it")


def test_a_seed_replays_exactly() -> None:
    plot = draw(3, PROFILES["one"])
    first, second = (Ring(plot, trace=True) for _ in range(2))
    assert first.run() == second.run()
    assert first.trace.lines == second.trace.lines


@pytest.mark.parametrize("num_sleepers", [1, 298])
def test_what_an_ended_process_begins_as_it_is_closed_is_closed_too(num_sleepers: int) -> None:
    """Also where its list of tasks is made anew just then."""
    process = Process(World("0"), "p", "h")
    begun = list[Coroutine[Any, Any, None]]()

    async def sleep() -> None:
        await asyncio.sleep(1e6)

    async def live() -> None:
        try:
            await sleep()
        finally:
            begun.extend((sleep(), sleep()))
            await asyncio.gather(*begun)

    for work in (live, *[sleep] * num_sleepers):
        process.spawn(work())
    process.world.run(1.0)
    process.world.close()
    assert [inspect.getcoroutinestate(work) for work in begun] == [inspect.CORO_CLOSED] * 2


@pytest.mark.slow
def test_a_failure_shrinks_to_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """If starting a worker again were a finding, one kill is all that it takes."""
    look = Checks.what_is_left

    def complain(checks: Checks) -> str:
        return look(checks) or ("a second process" if checks.ring.workers[0].num_starts > 1 else "")

    monkeypatch.setattr(Checks, "what_is_left", complain)
    kill = Fault(1.1, "kill", ("w0",), 0.1)
    others = (Fault(0.9, "reset_cache", ("w0",)), Fault(1.0, "set_clock", ("w0",), 0.0, -5.0))
    plot = draw(5, CALM)
    found = try_plot(replace(plot, faults=(*others, kill), requests=plot.requests[:2]))
    assert isinstance(found, Found)
    smallest = shrink(found)
    assert smallest.plot.faults == (kill,)
    assert not smallest.plot.requests
    assert "w0#1 was killed" in explain(smallest)
