"""Buckets of tokens: of keys in the frontends, of tenants in the scheduler."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.runtime.token_bucket import TokenBucket


def wait_s(bucket: TokenBucket, count: float, now: float) -> float:
    bucket.refill(now)
    return bucket.wait_s(count)


def test_a_bucket_holds_its_size_and_fills_evenly() -> None:
    bucket = TokenBucket(60, 1, 0)
    bucket.take(60)
    assert wait_s(bucket, 1, 0) == 1
    assert wait_s(bucket, 1, 1) == 0
    assert wait_s(bucket, 60, 1000) == 0
    bucket.take(60)
    assert wait_s(bucket, 60, 1000) == 60, "rest does not add up"


def test_what_is_larger_than_the_bucket_passes_once_and_is_paid_back() -> None:
    bucket = TokenBucket(60, 1, 0)
    assert wait_s(bucket, 600, 0) == 0
    bucket.take(600)
    assert wait_s(bucket, 1, 0) == 541
    assert bucket.wait_s() == 540, "until it is no longer below zero"


def test_under_another_limit_what_was_taken_stays_taken() -> None:
    bucket = TokenBucket(60, 1, 0)
    bucket.take(50)
    bucket.resize(120, 2)
    assert bucket.level == 70
    bucket.resize(30, 0.5)
    assert bucket.level == -20
    assert wait_s(bucket, 30, 100) == 0


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0, 5)), max_size=40))
def test_whoever_waits_as_told_is_let_in(calls: list[tuple[int, float]]) -> None:
    bucket, now = TokenBucket(30, 0.5, 0), 0.0
    for count, pause_s in calls:
        now += pause_s
        wait = wait_s(bucket, count, now)
        assert wait <= 60 * (1 + 50 / 30)
        now += wait
        assert wait_s(bucket, count, now) == pytest.approx(0, abs=1e-9)
        bucket.take(count)
