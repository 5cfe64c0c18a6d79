"""What loading and computing cost, as measured, and a disk that is left alone: pure."""

from __future__ import annotations

from worker_svc.disk.breaker import FIRST_S, MOST_S, Breaker
from worker_svc.disk.pace import Pace


def test_the_cheapest_token_counts() -> None:
    """DT7: steps that decode beside, or have few tokens, say nothing; what costs more counts slowly."""
    pace = Pace()
    pace.computed(10, 0, 10)
    pace.computed(100, 50, 100)
    assert pace.token_us == 0
    pace.computed(1000, 0, 100_000)
    assert pace.token_us == 100
    pace.computed(1000, 10, 50_000)
    assert pace.token_us == 50
    pace.computed(1000, 0, 100_000)
    assert 50 < pace.token_us < 60


def test_what_a_byte_costs_follows_what_is_measured() -> None:
    """DT7."""
    pace = Pace()
    pace.loaded(1 << 20, 0.001)
    first = pace.block_us(1 << 20)
    assert round(first) == 1000
    for _ in range(30):
        pace.loaded(1 << 20, 0.002)
    assert 1990 < pace.block_us(1 << 20) <= 2000
    pace.loaded(10, 5.0)
    assert pace.block_us(1 << 20) <= 2000


def test_a_disk_that_fails_again_is_left_alone_for_longer() -> None:
    """DT5: one piece of news each time."""
    breaker, now = Breaker(), 100.0
    assert not breaker.is_off(now) and breaker.fail(now) and not breaker.fail(now)
    assert breaker.is_off(now + FIRST_S - 0.1) and not breaker.is_off(now + FIRST_S)
    now += FIRST_S
    assert breaker.fail(now) and breaker.is_off(now + 2 * FIRST_S - 0.1)
    for _ in range(20):
        now += MOST_S
        breaker.fail(now)
    assert not breaker.is_off(now + MOST_S)
    breaker.succeed()
    now += MOST_S
    assert breaker.fail(now) and not breaker.is_off(now + FIRST_S)
