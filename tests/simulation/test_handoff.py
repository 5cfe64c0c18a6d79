"""Requests that go from one worker to another while they run, through the real shells (docs/design.md, HO): the rules
are those of every ring, and those of `ring/handoff_watch.py`. Bugs that are planted on purpose (handoff_mutants.py)
have to be found."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.pairs import in_soak
from tests.simulation import handoff_mutants as mutants
from tests.simulation.counts import FULL_COUNTS
from tests.simulation.hunts import Hunt, in_rings
from tests.simulation.ring.hunt import Found, counts_of, explain, shrink, try_plot
from tests.simulation.ring.profiles import PROFILES
from tests.simulation.ring.scenario import FIRST_S, draw
from tests.simulation.ring.setup import Fault
from worker_svc.steps.inbox import StepInbox

SEEDS = 40 if FULL_COUNTS else 5


def run(profile: str, seeds: range) -> Counter[str]:
    """What became of these rings."""
    return counts_of(draw(seed, PROFILES[profile]) for seed in seeds)


@pytest.mark.timeout(300)
def test_requests_are_handed_over_and_nothing_of_it_shows() -> None:
    """HO2 to HO7, HO10 to HO12, Y1: without faults all of them go on where they should, and no attempt is lost."""
    counts = run("handoff calm", range(SEEDS))
    assert counts["committed"] > 4 * SEEDS, f"the scenarios have become too easy: {counts}"


@pytest.mark.sampled
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "profile", ["handoff", "handoff states, windows, drafts and tier", "handoff nan", "rolling", "roles"]
)
def test_hand_offs_that_fail_cost_no_attempt(profile: str) -> None:
    """HO8, HO9, HO14, PD2, PD3."""
    counts = run(profile, range(60, 60 + SEEDS))
    assert counts["committed"] > SEEDS / 2, f"the scenarios have become too easy: {counts}"
    assert profile != "handoff" or counts["thawed"], f"no hand-off fails behind its freeze: {counts}"


@pytest.mark.timeout(300)
def test_a_worker_that_drains_is_empty_while_its_requests_run_on() -> None:
    """HO14: where others have room for all of them."""
    counts = Counter[str]()
    for seed in range(SEEDS):
        plot = draw(seed, PROFILES["handoff calm"])
        setup = replace(
            plot.setup,
            num_workers=3,
            num_blocks=400,
            num_slots=24,
            step_s=(0.1, 0.12),
            num_frontends=1,
            move_s=0.02,
        )
        settings = {"max_num_seqs": 24, "max_num_batched_tokens": 400}
        setup = replace(setup, scheduler=setup.scheduler | settings)
        drain = Fault(FIRST_S + plot.requests[-1].at / 4, "drain", ("w0",), 1.5)
        requests = tuple(replace(each, frontend=0) for each in plot.requests)
        outcome = try_plot(replace(plot, setup=setup, faults=(drain,), requests=requests))
        if isinstance(outcome, Found):
            pytest.fail(f"{outcome}\n{explain(shrink(outcome))}")
        counts.update(outcome.counts)
    assert counts["committed"], f"nothing was handed over: {counts}"
    assert not counts["drained in part"], f"what others had room for has stayed: {counts}"
    assert counts["drained"], f"{counts}"


def test_a_worker_that_is_told_to_stop_has_not_drained_while_requests_wait_behind_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """HO14: two requests wait behind steps of one that has ended, and nothing is held. One ring of 60,000 had it."""
    looks: list[bool] = []

    def look(inbox: StepInbox) -> bool:
        looks.append(is_empty(inbox))
        return looks[-1]

    is_empty = StepInbox.is_empty.fget
    assert is_empty is not None
    monkeypatch.setattr(StepInbox, "is_empty", property(look))
    outcome = try_plot(draw(1906114, PROFILES["rolling"]))
    assert not isinstance(outcome, Found), outcome
    assert False in looks and True in looks, (
        "nothing waits any more when the worker looks: the ring is another"
    )


HUNTS = [
    in_rings(mutants.decoders_take_no_prompts, "roles"),
    in_rings(mutants.source_goes_on_behind_the_tail, "handoff calm"),
    in_rings(mutants.frozen_before_its_tokens_are_there, "handoff calm"),
    in_rings(mutants.last_block_stays_behind, "handoff calm"),
    in_rings(mutants.blocks_are_read_before_they_are_whole, "handoff calm"),
    in_rings(mutants.windows_begin_a_block_late, "handoff windows"),
    in_rings(mutants.thawed_under_the_old_leg, "handoff"),
    in_rings(mutants.names_of_blocks_stay_behind, "handoff calm"),
    in_rings(mutants.prompts_are_read_again, "handoff calm"),
    in_rings(mutants.state_of_another_version, "handoff states"),
    in_rings(mutants.state_stays_behind, "handoff states"),
    in_rings(mutants.imported_rows_run_alone, "handoff"),
    in_rings(mutants.frozen_rows_run_alone, "handoff"),
    in_rings(mutants.committed_when_it_is_ready, "handoff calm"),
    *in_soak(in_rings(mutants.started_without_a_commit, "handoff calm")),
    in_rings(mutants.grants_do_not_follow, "handoff calm"),
    in_rings(mutants.frozen_blocks_are_given_away, "handoff calm"),
]


@pytest.mark.sampled
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hunt", HUNTS, ids=str)
def test_a_planted_bug_is_found(hunt: Hunt, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt.run(monkeypatch)
