"""Requests that come at once are shared out, whichever worker is asked first."""

from __future__ import annotations

import pytest

from tests.scheduler_svc.handoff.pair import A, B, Pair
from tests.scheduler_svc.harness import make_request


def crowd(pair: Pair) -> None:
    """One request is on its way through A, and twelve have come since."""
    first = make_request("first", 8)
    pair.core.submit(first, 0.0)
    pair.core.schedule(A, 0.0)
    assert first.worker_id == A
    for number in range(12):
        pair.core.submit(make_request(f"r{number}", 8), 0.0)


def make_pair() -> Pair:
    pair = Pair(attach=False, max_inflight_steps=1)
    pair.fields["num_blocks"] = 256
    pair.attach(A)
    pair.attach(B)
    return pair


def test_a_worker_leaves_some_to_one_whose_step_is_in_flight() -> None:
    """Q4: it takes no more than two beyond what the other one has."""
    pair = make_pair()
    crowd(pair)
    pair.core.schedule(B, 0.0)
    assert (pair.a.load, pair.b.load) == (1, 3)
    pair.report(A)
    pair.core.schedule(A, 0.0)
    pair.core.check_integrity()
    assert pair.a.load == 3 + 2


@pytest.mark.parametrize("is_late", [False, True])
def test_nobody_is_waited_for_in_vain(is_late: bool) -> None:
    """Q4, E1: not for longer than `balance_wait_ms`, and not for one that is not well."""
    pair = make_pair()
    crowd(pair)
    if is_late:
        pair.core.schedule(B, 0.0)
        assert pair.b.load == 3
        for now in (0.3, 0.6):  # those that it did not come to are looked at from then on
            pair.report(B, now)
            pair.core.schedule(B, now)
    else:
        pair.a.vitals.has_left = True
        pair.core.schedule(B, 0.0)
    assert pair.b.load == 12
