"""Just-in-time steps against a simulated worker: it must not idle, and steps must not wait long in its queue."""

from __future__ import annotations

import random

import pytest

from scheduler_svc.core.state.steps.pacing import Pacer


def simulate(one_way_s: float, step_s: float, jitter: float, steps: int = 600) -> tuple[float, float]:
    """Two steps in flight over a link with a delay. Returns the idle share and the mean wait in the queue, both over
    the second half."""
    rng, pacer = random.Random(1), Pacer()
    ends: list[float] = []
    idle = waited = measured = 0.0
    sent = [0.0, 0.0]
    for number in range(steps):
        arrival = sent[number] + one_way_s
        free = ends[-1] if ends else 0.0
        start = max(arrival, free)
        duration = step_s * rng.uniform(1 - jitter, 1 + jitter)
        ends.append(start + duration)
        if number > steps // 2:
            idle += start - free
            waited += start - arrival
            measured += start - free + duration
        pacer.observe(duration_s=duration, queued_s=start - arrival, was_ahead=number > 0)
        # The report makes room for the step after the next; it leaves when it has been held back.
        sent.append(ends[-1] + one_way_s + pacer.hold_s())
    return idle / measured, waited / (steps / 2)


@pytest.mark.parametrize("one_way_s", [0.0003, 0.005])
def test_the_worker_does_not_idle_and_steps_do_not_wait(one_way_s: float) -> None:
    """Q5."""
    idle, waited = simulate(one_way_s, step_s=0.020, jitter=0.02)
    assert idle < 0.01
    eager = 0.020 - 2 * one_way_s
    assert waited < eager / 2, (
        f"a step waits {waited * 1e3:.1f} ms; sent at once it would wait {eager * 1e3:.1f} ms"
    )


def test_with_irregular_steps_idling_stays_small() -> None:
    idle, _ = simulate(0.001, step_s=0.020, jitter=0.3)
    assert idle < 0.03


def test_nothing_is_held_back_before_durations_are_known() -> None:
    pacer = Pacer()
    pacer.observe(duration_s=1.0, queued_s=0.5, was_ahead=True)
    assert pacer.hold_s() == 0.0


def test_a_stall_is_soon_forgotten() -> None:
    """While everything was late, the lead grew; it must not have grown beyond what a step lasts."""
    pacer = Pacer()
    for _ in range(50):
        pacer.observe(duration_s=0.020, queued_s=0.0, was_ahead=True)
    assert pacer.hold_s() == 0.0
    for _ in range(60):
        pacer.observe(duration_s=0.020, queued_s=0.0194 - pacer.hold_s(), was_ahead=True)
    assert pacer.hold_s() > 0.015
