"""However frontends, links and schedulers come and go: a key gets no more than its limit and the stated bound, and
what nobody uses is there for whoever asks. Bugs are planted, and the same judge finds each of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from frontend_svc.access.lender import Lender
from frontend_svc.access.lent_limit import LentLimit
from scheduler_svc.core.budgets.ledger import Ledger
from scheduler_svc.core.budgets.pool import Pool
from tests.budgets.chaos import Limits, judge_chaos

SEEDS = range(4)
LIMITS = (Limits(3, 7, 500), Limits(16, 600, 20_000), Limits(1, 200, 64))
Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("with_takeovers", [False, True], ids=["one-scheduler", "takeovers"])
@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("seed", SEEDS)
async def test_frontends_together_stay_within_a_key_s_limits(
    seed: int, limits: Limits, with_takeovers: bool
) -> None:
    """KB1, KB3, KB4, KB6; and behind all trouble one frontend gets the whole limit: nothing has leaked (KB2, KB7)."""
    judge = await judge_chaos(seed, limits, with_takeovers=with_takeovers)
    assert judge.num_calls >= 7 and judge.num_charged, "there was something to judge"


# ---- bugs


def fills_what_is_lent(patch: pytest.MonkeyPatch) -> None:
    """A pool fills up to the limit, whatever of it is lent."""
    patch.setattr(Pool, "_bound", lambda pool: None)


def forgets_at_once(patch: pytest.MonkeyPatch) -> None:
    """What is lent to a frontend without a link is there for others at once."""
    leave = Ledger.leave
    patch.setattr(Ledger, "leave", lambda self, frontend, now: leave(self, frontend, now - self._hold_s))


def never_forgets(patch: pytest.MonkeyPatch) -> None:
    """What a frontend has that is gone stays lent."""
    patch.setattr(Pool, "leave", lambda pool, frontend, until: None)


def charges_nobody(patch: pytest.MonkeyPatch) -> None:
    """Outputs are not told."""
    patch.setattr(LentLimit, "charge", lambda limit, count: None)


def counts_twice_what_goes_back(patch: pytest.MonkeyPatch) -> None:
    """A frontend goes on with what it has given back."""
    give_back = LentLimit.give_back

    def keep(limit: LentLimit) -> None:
        held = limit.held
        give_back(limit)
        limit.held = held

    patch.setattr(LentLimit, "give_back", keep)


def says_nothing_of_before(patch: pytest.MonkeyPatch) -> None:
    """A scheduler is not told what a frontend has from before, and takes all that it does not know for free."""
    patch.setattr(LentLimit, "begin", lambda limit, was_alone: None)


def counts_alone(patch: pytest.MonkeyPatch) -> None:
    """Each frontend lets in what the limit allows, as if there was no other."""
    begin = Lender.begin
    patch.setattr(Lender, "begin", lambda lender, lends: begin(lender, lends=False))


PLANTS: tuple[Plant, ...] = (
    fills_what_is_lent,
    forgets_at_once,
    never_forgets,
    charges_nobody,
    counts_twice_what_goes_back,
    says_nothing_of_before,
    counts_alone,
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
async def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """By some of the seeds above, with one scheduler."""
    plant(monkeypatch)
    for limits in LIMITS:
        for seed in SEEDS:
            try:
                await judge_chaos(seed, limits, with_takeovers=False)
            except AssertionError:
                return
    pytest.fail("nobody has seen it")
