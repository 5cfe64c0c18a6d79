"""Bugs planted on purpose (mutants.py): the simulations have to find each of them, or they prove nothing.

Each is hunted in the kind of scenario that reaches its code."""

from __future__ import annotations

import pytest

from tests.simulation import mutants
from tests.simulation.hunts import Hunt, in_rings, in_scenarios
from tests.simulation.random_scenario import Scenario

HUNTS = [
    in_rings(mutants.seal_without_generation_check, "calm"),
    in_rings(mutants.slot_reused_before_its_report, "calm"),
    in_rings(mutants.count_advanced_at_scheduling, "calm"),
    in_rings(mutants.fence_ended_before_its_copies, "calm"),
    in_rings(mutants.outputs_forget_who_began_them, "identities"),
    in_rings(mutants.outputs_go_on_anywhere, "identities"),
    in_rings(mutants.skipped_rows_count, "bursts"),
    in_rings(mutants.grants_of_skipped_steps_are_lost, "bursts"),
    in_rings(mutants.removed_worker_keeps_requests, "one"),
    in_rings(mutants.gone_frontend_is_kept, "one"),
    in_rings(mutants.no_start_grace, "alone"),
    in_rings(mutants.loan_outlives_its_blocks, "alone"),
    in_rings(mutants.silence_is_judged_behind_a_stall, "stopped"),
    in_rings(mutants.questions_are_not_answered, "walled"),
    in_rings(mutants.orphans_of_its_own_are_adopted, "gone"),
    in_rings(mutants.requests_of_gone_frontends_go_on, "gone"),
    in_rings(mutants.terms_of_others_are_obeyed, "alone"),
    in_rings(mutants.blocks_written_alone_are_trusted, "apart"),
    in_rings(mutants.old_attempts_are_believed, "stopped"),
    in_rings(mutants.limits_end_what_was_accepted, "pressed"),
    in_rings(mutants.masks_are_charged_to_nobody, "calm"),
    in_rings(mutants.masks_of_a_replay_are_charged, "rolling"),
    in_rings(mutants.masks_are_charged_in_every_report, "calm"),
    in_rings(mutants.masks_are_charged_to_another_slot, "calm"),
]


def run_unwatched(seed: int) -> None:
    """A scenario that is checked by wrong ends and outputs only."""
    scenario = Scenario(seed, (2, 4)[seed % 2], 0, faults=False)
    scenario.check = lambda: None  # type: ignore[method-assign]
    scenario.run()
    assert scenario.scheduler.num_divergences == 0


CORE_HUNTS = [
    in_scenarios(plant, "unwatched", run_unwatched, Exception)
    for plant in (
        mutants.news_of_another_attempts_grammar_believed,
        mutants.decode_row_behind_a_pooling_request,
    )
]


@pytest.mark.sampled
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hunt", HUNTS, ids=str)
def test_a_planted_bug_is_found(hunt: Hunt, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt.run(monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hunt", CORE_HUNTS, ids=str)
def test_a_planted_bug_is_found_by_the_cores_alone(hunt: Hunt, monkeypatch: pytest.MonkeyPatch) -> None:
    """These want one message against another, which the light driver has more of."""
    hunt.run(monkeypatch)


def test_without_a_planted_bug_the_same_scenarios_pass() -> None:
    for hunt in (HUNTS[0], HUNTS[8], HUNTS[10]):
        for seed in hunt.seeds()[:3]:
            assert not hunt.try_seed(seed)
