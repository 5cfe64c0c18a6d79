"""Bugs planted on purpose in how pairs of workers are left out (docs/design.md, HO21): rings in which one worker cannot
read from another (`ring/pair_watch.py`) have to find each of them."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_svc.core.cluster.pairs import Pair, PairTroubles
from scheduler_svc.core.moves import desk
from signalbox.protocol.enums import ReadFault
from worker_svc.transfer.control import dialogue

Patch = pytest.MonkeyPatch


def pairs_that_failed_are_not_left_out(patch: Patch) -> None:
    """HO21: a failure says nothing of the next hand-off."""
    patch.setattr(PairTroubles, "failed", lambda *given: None)


def pairs_are_left_out_for_ever(patch: Patch) -> None:
    """LO2: a breaker that never closes."""

    def is_unknown(troubles: PairTroubles, pair: Pair, now: float, num_open: int) -> bool:
        return pair not in troubles._troubles

    patch.setattr(PairTroubles, "may_try", is_unknown)
    patch.setattr(PairTroubles, "forget_old", lambda *given: None)


def pauses_do_not_grow(patch: Patch) -> None:
    """HO21: each failure is taken for the first."""
    failed = PairTroubles.failed

    def fail_anew(troubles: PairTroubles, pair: Pair, reason: str, now: float) -> None:
        known: Any = troubles._troubles.get(pair)
        if known is not None and now >= known.until:
            del troubles._troubles[pair]
        failed(troubles, pair, reason, now)

    patch.setattr(PairTroubles, "failed", fail_anew)


def failures_of_requests_count(patch: Patch) -> None:
    """HO21: whatever a target cannot take over counts against the pair."""
    patch.setattr(desk, "REASONS", {})


def sources_do_not_say_whose_fault_it_is(patch: Patch) -> None:
    """HO21: what a source has withdrawn is taken for a failure of the pair."""
    patch.setattr(dialogue, "ReadFault", lambda value: ReadFault.PAIR)
