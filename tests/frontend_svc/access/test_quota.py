"""What a key may take: buckets, requests at once, and the places of a call."""

from __future__ import annotations

from typing import Any

import pytest

from frontend_svc.access.keys import Key
from frontend_svc.access.quota import KeyQuota
from signalbox.api_keys import make_key
from signalbox.errors import PermissionDeniedError, ResourceExhaustedError


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def make(clock: Clock, **limits: Any) -> KeyQuota:
    return KeyQuota(entry(**limits), clock)


def entry(**limits: Any) -> Key:
    return Key(hash=make_key().hash, tenant="t", **limits)


def test_requests_at_once() -> None:
    quota = make(Clock(), requests_at_once=3)
    first = quota.take(2)
    with pytest.raises(ResourceExhaustedError, match="2 of 3 requests at once") as caught:
        quota.take(2)
    assert caught.value.retry_after_s == 1
    assert caught.value.message == (
        "requests_at_once: this key has 2 of 3 requests at once, and 2 more are asked for; try again in 1 s"
    )
    first.start()
    first.close()
    assert quota.num_open == 1, "one of two began"
    first.end(5)
    assert quota.num_open == 0


def test_more_than_ever_run_at_once_is_not_a_matter_of_waiting() -> None:
    with pytest.raises(PermissionDeniedError, match="asks for 4 choices"):
        make(Clock(), requests_at_once=3).take(4)


def test_requests_per_minute() -> None:
    clock = Clock()
    quota = make(clock, requests_per_minute=2)
    for _ in range(2):
        quota.take(1).close()
    with pytest.raises(ResourceExhaustedError) as caught:
        quota.take(1)
    assert caught.value.retry_after_s == pytest.approx(30)
    assert caught.value.message == (
        "requests_per_minute: this key has 0 left of its 2 requests per minute, and 1 more are asked for; "
        "try again in 30 s"
    )
    clock.now += 30
    quota.take(1)


async def test_outputs_are_paid_for_afterwards() -> None:
    clock = Clock()
    quota = make(clock, tokens_per_minute=100)
    lease = quota.take(1)
    await lease.take_prompt(90)
    lease.start()
    lease.end(70)
    with pytest.raises(ResourceExhaustedError, match="100 tokens per minute") as caught:
        quota.take(1)
    assert caught.value.retry_after_s == pytest.approx(61 * 60 / 100)


async def test_a_refused_prompt_costs_nothing() -> None:
    quota = make(Clock(), tokens_per_minute=100)
    lease = quota.take(2)
    await lease.take_prompt(60)
    with pytest.raises(ResourceExhaustedError):
        await lease.take_prompt(60)
    await lease.take_prompt(40)


def test_other_limits_do_not_forget_what_was_taken() -> None:
    quota = make(Clock(), requests_per_minute=10)
    quota.take(8)
    quota.follow(entry(requests_per_minute=9, requests_at_once=9))
    quota.take(1)
    with pytest.raises(ResourceExhaustedError):
        quota.take(1)
    quota.follow(entry())
    quota.take(1000)


def test_what_is_left_is_never_said_to_be_more_than_it_is() -> None:
    clock = Clock()
    quota = make(clock, requests_per_minute=60)
    quota.take(60)
    clock.now += 0.9
    with pytest.raises(ResourceExhaustedError, match="has 0 left of its 60 requests per minute, and 1 more"):
        quota.take(1)
