"""What a process does with what it is lent, and what a scheduler knows of it."""

from __future__ import annotations

import asyncio

import pytest

from frontend_svc.access.keys import Key
from frontend_svc.access.lender import KEEP_TICKS, Lender
from frontend_svc.access.lent_limit import LentLimit, LimitReport, Refusal
from frontend_svc.access.quota import KeyQuota
from scheduler_svc.core.budgets.ledger import Ledger
from scheduler_svc.core.budgets.pool import SPARE_PART, Before, Loan, Pool, Report
from scheduler_svc.links.budget_desk import MOST
from signalbox.errors import UnavailableError
from signalbox.protocol.enums import BudgetKind
from signalbox.runtime.token_bucket import TokenBucket
from tests.budgets.lent_ring import HASH, HOLD_S, KEY_ID, LentRing, settle

REQUESTS, PLACES = BudgetKind.REQUESTS_PER_MINUTE, BudgetKind.REQUESTS_AT_ONCE
TOKENS = BudgetKind.TOKENS_PER_MINUTE


def make_lender(
    kind: BudgetKind, limit: int = 10, bucket: TokenBucket | None = None
) -> tuple[Lender, LentLimit]:
    """With a link to a scheduler that lends."""
    lender = Lender(lambda: None, lambda: 0.0, answer_s=0.05)
    if kind is not PLACES and bucket is None:
        bucket = TokenBucket(limit, limit / 60, 0.0)
    lent = lender.add(KEY_ID, kind, limit, bucket)
    lender.begin(lends=True)
    return lender, lent


def told(lender: Lender) -> LimitReport:
    """The one report that the next message has."""
    ((_, report),) = lender.take_reports()
    return report


# ---- a frontend


async def test_one_question_is_for_all_who_wait() -> None:
    """KB1: one question at a time; a refusal is for whoever wants as much or more."""
    lender, lent = make_lender(REQUESTS)
    calls = [asyncio.create_task(lender.reserve(lent, count)) for count in (4, 5, 1)]
    await settle()
    assert told(lender) == LimitReport(10, before=(0, 10), wanted=10, least=4)
    late = asyncio.create_task(lender.reserve(lent, 2))
    await settle()
    assert lender.take_reports() == [], "one question at a time"
    lender.take_loan((KEY_ID, REQUESTS), 4, 7, 0.0)
    assert await calls[0] is None
    assert told(lender) == LimitReport(10, wanted=8, least=5)
    lender.take_loan((KEY_ID, REQUESTS), 0, 3, 6.0)
    await settle()
    assert calls[1].result() == Refusal(3, 6.0)
    assert told(lender) == LimitReport(10, wanted=3, least=1)
    lender.take_loan((KEY_ID, REQUESTS), 1, 3, 0.0)
    assert await calls[2] is None
    assert told(lender) == LimitReport(10, wanted=2, least=2)
    lender.take_loan((KEY_ID, REQUESTS), 0, 1, 6.0)
    assert await late == Refusal(1, 6.0)


async def test_what_is_used_before_the_first_report_of_a_link_is_said_once() -> None:
    """KB4: what was held ahead of it has it, and so has the count of what was used."""
    bucket = TokenBucket(10, 10 / 60, 0.0)
    lender, lent = make_lender(REQUESTS, bucket=bucket)
    call = asyncio.create_task(lender.reserve(lent, 3))
    await settle()
    told(lender)
    lender.take_loan((KEY_ID, REQUESTS), 5, 10, 0.0)
    await call
    lender.end()
    lender.begin(lends=True)
    lent.use(3)
    bucket.take(3)
    lent.give_back()
    report = told(lender)
    assert report == LimitReport(10, before=(5, 10), used=3, returned=2)
    pool = Pool(REQUESTS, 10, 0.0)
    pool.report("f", Report(10, Before(5, 10), used=3, returned=2), 0.0)
    assert (pool.num_lent, pool.left) == (0, 7)


async def test_places_that_came_free_without_a_link_go_back_with_the_next() -> None:
    """KB2."""
    lender, lent = make_lender(PLACES)
    call = asyncio.create_task(lender.reserve(lent, 3))
    await settle()
    told(lender)
    lender.take_loan((KEY_ID, PLACES), 3, 7, 0.0)
    await call
    lender.end()
    lender.release(lent, 2)
    lender.begin(lends=True)
    report = told(lender)
    assert (report.before and report.before[0], report.returned, lent.held) == (3, 2, 0)


async def test_who_goes_away_takes_nothing_along() -> None:
    """KB2: whether what was lent had come or not."""
    lender, lent = make_lender(REQUESTS)
    for has_come in (False, True):
        call = asyncio.create_task(lender.reserve(lent, 4))
        await settle()
        assert told(lender).wanted == 4
        if has_come:
            lender.take_loan((KEY_ID, REQUESTS), 4, 6, 0.0)
            call.cancel()
        else:
            call.cancel()
            await settle()
            lender.take_loan((KEY_ID, REQUESTS), 4, 6, 0.0)
        await asyncio.gather(call, return_exceptions=True)
        assert (lent.held, lent.in_use, call.cancelled()) == (4, 0, True)
        lent.give_back()
        assert told(lender).returned == 4


async def test_what_is_not_wanted_goes_back() -> None:
    """KB2: places at once, the rest when nobody has wanted any for some seconds."""
    lender, lent = make_lender(REQUESTS)
    call = asyncio.create_task(lender.reserve(lent, 2))
    await settle()
    told(lender)
    lender.take_loan((KEY_ID, REQUESTS), 5, 10, 0.0)
    await call
    lent.use(2)
    for _ in range(2 * KEEP_TICKS):
        assert lent.held == 3
        lender.tick()
    assert told(lender) == LimitReport(10, used=2, returned=3)

    lender, lent = make_lender(PLACES)
    call = asyncio.create_task(lender.reserve(lent, 1))
    await settle()
    told(lender)
    lender.take_loan((KEY_ID, PLACES), 1, 9, 0.0)
    await call
    lender.release(lent, 1)
    assert told(lender) == LimitReport(10, returned=1)


async def test_without_a_link_what_is_lent_can_be_used_and_no_more() -> None:
    """KB5; ahead of the first link that is nothing."""
    first = Lender(lambda: None, lambda: 0.0, answer_s=0.05)
    with pytest.raises(UnavailableError, match="lends this key its limits"):
        await first.reserve(first.add(KEY_ID, REQUESTS, 10, TokenBucket(10, 1, 0.0)), 1)
    lender, lent = make_lender(REQUESTS)
    call = asyncio.create_task(lender.reserve(lent, 1))
    await settle()
    told(lender)
    lender.take_loan((KEY_ID, REQUESTS), 3, 10, 0.0)
    await call
    lender.end()
    assert await lender.reserve(lent, 2) is None
    with pytest.raises(UnavailableError):
        await lender.reserve(lent, 1)
    waiting = asyncio.create_task(lender.reserve(lent, 1))
    await settle()
    lender.begin(lends=True)
    report = told(lender)
    assert (report.before, report.wanted) == ((3, 10), 1), "who waited goes on"
    waiting.cancel()


async def test_a_limit_that_is_gone_keeps_nobody_waiting_and_nothing() -> None:
    """KB2, KB5: the key file has changed, or a scheduler leads that does not lend."""
    lender, lent = make_lender(REQUESTS)
    call = asyncio.create_task(lender.reserve(lent, 4))
    await settle()
    told(lender)
    lender.drop(KEY_ID, REQUESTS)
    assert await call is None
    lender.take_loan((KEY_ID, REQUESTS), 4, 6, 0.0)
    for _ in range(2 * KEEP_TICKS):
        lender.tick()
    assert told(lender).returned == 4
    other, lent = make_lender(PLACES)
    call = asyncio.create_task(other.reserve(lent, 4))
    await settle()
    other.begin(lends=False)
    assert await call is None
    assert not other.is_lent and (lent.held, lent.in_use) == (0, 4)


async def test_a_key_without_limits_is_asked_of_nobody() -> None:
    """KB8: whether there is a scheduler or not, nothing waits and nothing is said."""
    lender = Lender(lambda: pytest.fail("woken"), lambda: 0.0, answer_s=0.0)
    quota = KeyQuota(Key(hash=HASH, tenant="t"), lambda: 0.0, key_id=KEY_ID, lender=lender)
    for is_linked in (False, True):
        if is_linked:
            lender.begin(lends=True)
        with pytest.raises(StopIteration) as ended:  # what never waits ends with the first step
            quota.admit(2).send(None)
        lease = ended.value.value
        lease.start()
        lease.end(100)
        lease.close()
        lender.tick()
        assert (lender.take_reports(), quota.num_open) == ([], 0)


# ---- a scheduler


def test_what_is_too_little_for_the_first_is_not_lent() -> None:
    """KB1: half a part for each of two helps neither; of limits per minute there is a little on top."""
    pool = Pool(TOKENS, 640, 0.0)
    pool.report("f", Report(640), 0.0)
    assert pool.lend("f", 600, 600) == Loan(600 + 640 // SPARE_PART, 640, 0.0)
    assert pool.lend("g", 200, 100) == Loan(0, 640, pytest.approx(7 * 60 / 64)), (
        "30 are left, and nothing is used up"
    )
    assert pool.lend("g", 200, 20).lent == 30
    places = Pool(PLACES, 4, 0.0)
    assert [places.lend("f", 1, 1).lent, places.lend("g", 9, 4).lent, places.lend("g", 9, 2).lent] == [
        1,
        0,
        3,
    ]


def test_more_than_a_minute_s_worth_is_lent_when_nothing_is_missing() -> None:
    """KB1: as a process that counts alone lets it in; what follows waits until it is paid for."""
    pool = Pool(TOKENS, 60, 0.0)
    assert pool.lend("f", 100, 100).lent == 100
    pool.report("f", Report(60, used=100), 0.0)
    assert (pool.left, pool.lend("f", 1, 1)) == (-40, Loan(0, -40, 41.0))
    pool.report("f", Report(60), 41.0)
    assert pool.lend("f", 1, 1).lent == 1


def test_outputs_are_paid_for_ahead_of_the_next_loan() -> None:
    """KB3."""
    pool = Pool(TOKENS, 60, 0.0)
    pool.report("f", Report(60, charged=90), 0.0)
    assert pool.lend("g", 1, 1) == Loan(0, -30, 31.0)


def test_what_is_lent_does_not_fill_again() -> None:
    """KB1."""
    pool = Pool(REQUESTS, 60, 0.0)
    pool.lend("f", 60, 60)
    pool.report("g", Report(60), 1000.0)
    assert pool.lend("g", 1, 1).lent == 0
    pool.report("f", Report(60, used=20, returned=10), 1000.0)
    pool.check_integrity()
    assert (pool.num_lent, pool.lend("g", 10, 10).lent, pool.lend("g", 1, 1).lent) == (30, 10, 0)


def test_what_a_frontend_has_that_is_gone_comes_back() -> None:
    """KB2: after its time; one that is back before says what it has."""
    ledger = Ledger(HOLD_S)
    name = (KEY_ID, PLACES)
    for frontend in ("f", "g"):
        assert ledger.report(frontend, name, Report(2, wanted=1), 0.0) == Loan(
            1, 1 if frontend == "f" else 0, 0.0
        )
        ledger.leave(frontend, 1.0)
    assert ledger.report("g", name, Report(2, before=Before(1, 1)), 5.0) is None
    ledger.check_integrity()
    refused = ledger.report("h", name, Report(2, wanted=1), 1.0 + HOLD_S - 0.1)
    lent = ledger.report("h", name, Report(2, wanted=1), 1.0 + HOLD_S)
    more = ledger.report("h", name, Report(2, wanted=1), 1e6)
    assert [loan and loan.lent for loan in (refused, lent, more)] == [0, 1, 0]


def test_another_scheduler_takes_the_least_that_frontends_know_to_be_left() -> None:
    """KB4."""
    ledger = Ledger(HOLD_S)
    name = (KEY_ID, REQUESTS)
    for frontend, before in (("f", Before(0, 9)), ("g", Before(2, 5)), ("h", Before(0, 60))):
        ledger.report(frontend, name, Report(60, before=before), 0.0)
    assert ledger.report("h", name, Report(60, wanted=4, least=4), 0.0) == Loan(0, 5, pytest.approx(1.0))
    assert ledger.report("h", name, Report(60, wanted=3, least=3), 0.0) == Loan(3, 5, 0.0)


def test_another_limit_counts_from_the_report_that_says_it() -> None:
    """What was taken stays taken."""
    pool = Pool(REQUESTS, 60, 0.0)
    pool.lend("f", 50, 50)
    pool.report("f", Report(30, used=50), 0.0)
    assert pool.left == -20
    pool.report("f", Report(60), 0.0)
    assert pool.left == 10


@pytest.mark.parametrize("kind", BudgetKind)
def test_no_number_of_a_frontend_breaks_the_sums(kind: BudgetKind) -> None:
    """KB8: one that says nonsense costs a key an hour at most."""
    pool = Pool(kind, 60, 0.0)
    huge = MOST
    for report in (
        Report(60, used=huge, charged=huge, returned=huge),
        Report(60, before=Before(huge, -(1 << 62))),
        Report(huge),
        Report(60, before=Before(0, 1 << 62)),
    ):
        pool.report("f", report, 0.0)
        pool.check_integrity()
    pool.report("f", Report(60, returned=huge), 3700.0)
    assert pool.lend("g", 60, 60).lent == 60


def test_limits_that_nobody_misses_are_forgotten() -> None:
    """KB8: memory is bounded, whatever keys frontends name."""
    ledger = Ledger(HOLD_S, max_pools=50)
    for number in range(500):
        ledger.report("f", (str(number), REQUESTS), Report(60, wanted=60), number / 1000)
        assert len(ledger) <= 51
    ledger = Ledger(HOLD_S)
    for number in range(50):
        ledger.report("f", (str(number), REQUESTS), Report(60, charged=1), float(number))
    for number in range(50):
        ledger.report("f", ("one", REQUESTS), Report(60, charged=1), 200.0 + number)
    assert len(ledger) == 1


# ---- both


@pytest.mark.parametrize("seed", range(3))
async def test_who_is_cut_off_for_long_adds_what_it_was_lent_and_no_more(seed: int) -> None:
    """KB2, KB5, KB6."""
    ring = LentRing(seed, 2, requests_per_minute=640)
    away, there = ring.frontends
    for frontend in ring.frontends:
        frontend.attach()
    await ring.run(1)
    num_taken = {away: 0, there: 0}

    async def take(frontend: object, wanted: int) -> None:
        assert frontend in (away, there)
        for _ in range(wanted):
            call = asyncio.create_task(frontend.call(1, 0))  # type: ignore[attr-defined]
            await ring.run(0.1)
            if not call.done():
                call.cancel()
            elif call.result() is not None:
                num_taken[frontend] += 1  # type: ignore[index]

    await take(away, 1)
    spare = 640 // SPARE_PART
    away.cut()
    began_at = ring.now
    await take(away, 2 * spare)
    assert 1 < num_taken[away] <= 1 + spare, "it goes on with what it has, and no more"
    await ring.run(HOLD_S + 60)
    calls = [asyncio.create_task(there.call(1, 0)) for _ in range(1000)]
    await ring.run(3)
    num_served = sum(call.done() and call.result() is not None for call in calls)
    assert 640 <= num_served <= 640 + 4 * 640 / 60, "the rest is there for others"
    assert ring.now > began_at + HOLD_S
    for call in calls:
        call.cancel()
