"""The short form of the chaos runs: a worker and the scheduler are killed under streams of all kinds, and no stream is
lost, doubled or changed (docs/liveness.md: E2, A1 to A5, T3; docs/reliability.md has the long forms). Nothing here
judges how long anything takes."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from tests.chaos.__main__ import TREE, say, short_faults
from tests.chaos.kinds import make_asks
from tests.chaos.outcome import Choice, Outcome, Verdict
from tests.chaos.tally import Tally, Window
from tests.chaos.trial import try_faults

NUM_STREAMS = 20
NUM_TOKENS = 100


@pytest.mark.fresh
@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_streams_of_all_kinds_outlive_the_death_of_a_worker_and_of_the_scheduler() -> None:
    tallies: list[Tally] = []
    faults = short_faults()
    await try_faults(
        faults[0][0].shape, faults, make_asks(NUM_STREAMS, NUM_TOKENS), TREE, say, tallies.append
    )
    assert [tally.name for tally in tallies] == [fault.name for fault, _ in faults]
    for tally in tallies:
        assert tally.is_right, tally.details
        assert tally.verdicts[Verdict.RIGHT] >= NUM_STREAMS


# The judge itself: a judge that sees nothing would find all runs right.


def make_outcome(text: str = "abc", **more: object) -> Outcome:
    outcome = Outcome(make_asks(1, 10)[0], 0, "frontend-0", 10.0, ended=20.0, num_ends=1, usage=(3, 3))
    outcome.choices[0] = Choice(text, finish_reasons=["length"])
    for name, value in more.items():
        setattr(outcome, name, value)
    return outcome


@pytest.mark.parametrize(
    ("got", "verdict"),
    [
        (make_outcome(), Verdict.RIGHT),
        (make_outcome("abd"), Verdict.CHANGED),
        (make_outcome("abcbc"), Verdict.CHANGED),
        (make_outcome(usage=(3, 4)), Verdict.CHANGED),
        (make_outcome(choices={0: Choice("abc", finish_reasons=["stop"])}), Verdict.CHANGED),
        (make_outcome(choices={0: Choice("abc", ["x"], [-1.0], ["length"])}), Verdict.CHANGED),
        (make_outcome(choices={0: Choice("abc")}), Verdict.LOST),
        (make_outcome(num_ends=0), Verdict.LOST),
        (make_outcome(error="the request was lost"), Verdict.LOST),
        (make_outcome(num_ends=2), Verdict.DOUBLED),
        (make_outcome(choices={0: Choice("abc", finish_reasons=["length", "length"])}), Verdict.DOUBLED),
        (make_outcome(error="503", was_refused=True, choices={}), Verdict.REFUSED),
    ],
)
def test_the_judge_tells_what_became_of_a_stream(got: Outcome, verdict: Verdict) -> None:
    assert got.judge(make_outcome()) is verdict
    tally = Tally("any", drafts=False)
    tally.take([got], [make_outcome()], [])
    assert tally.verdicts == Counter([verdict])
    assert tally.is_right == (verdict in (Verdict.RIGHT, Verdict.REFUSED))


def test_a_pause_counts_for_the_streams_that_ran_when_a_fault_came() -> None:
    steady = [10 + step * 0.5 for step in range(20)]
    paused = [at if at < 12 else at + 3 for at in steady]
    later = [at + 5 for at in steady]
    outcomes = [make_outcome(times=times, asked=times[0] - 1) for times in (steady, paused, later)]
    tally = Tally("any", drafts=False)
    tally.measure(outcomes, Window(11.9, 16))
    assert tally.gaps == [0.5, 3.5]
    assert tally.waits == [1.0]
    assert all(b - a == 0.5 for a, b in itertools.pairwise(steady))
