"""Bugs planted on purpose (mutants.py): the simulations have to find each of them, or they prove nothing.

Each is hunted in the kind of scenario that reaches its code, from a seed on that is not far from one that shows it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation import mutants
from tests.simulation.random_scenario import Scenario
from tests.simulation.ring.hunt import Found, try_plot
from tests.simulation.ring.profiles import PROFILES
from tests.simulation.ring.scenario import draw

BUDGET = 40
"""Rings within which a planted bug has to show."""
CORE_BUDGET = 400
"""The same for scenarios of the cores alone."""


@pytest.mark.sampled
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("plant", "profile", "first"),
    [
        (mutants.seal_without_generation_check, "calm", 8),
        (mutants.slot_reused_before_its_report, "calm", 0),
        (mutants.count_advanced_at_scheduling, "calm", 0),
        (mutants.fence_ended_before_its_copies, "calm", 3),
        (mutants.outputs_forget_who_began_them, "identities", 0),
        (mutants.outputs_go_on_anywhere, "identities", 5),
        (mutants.skipped_rows_count, "bursts", 0),
        (mutants.grants_of_skipped_steps_are_lost, "bursts", 0),
        (mutants.removed_worker_keeps_requests, "one", 2),
        (mutants.gone_frontend_is_kept, "one", 1),
        (mutants.no_start_grace, "alone", 0),
        (mutants.loan_outlives_its_blocks, "alone", 1),
        (mutants.silence_is_judged_behind_a_stall, "stopped", 1),
        (mutants.questions_are_not_answered, "walled", 10),
        (mutants.orphans_of_its_own_are_adopted, "gone", 0),
        (mutants.requests_of_gone_frontends_go_on, "gone", 0),
        (mutants.terms_of_others_are_obeyed, "alone", 0),
        (mutants.blocks_written_alone_are_trusted, "apart", 0),
        (mutants.old_attempts_are_believed, "stopped", 6),
        (mutants.limits_end_what_was_accepted, "pressed", 2),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], profile: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(first, first + BUDGET):
        outcome = try_plot(draw(seed, PROFILES[profile]))
        if isinstance(outcome, Found):
            print(f"found in scenario {seed - first + 1}: {outcome}")
            return
    pytest.fail(f"{plant.__name__} was not found in {BUDGET} scenarios")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "plant", [mutants.news_of_another_attempts_grammar_believed, mutants.decode_row_behind_a_pooling_request]
)
def test_a_planted_bug_is_found_by_the_cores_alone(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By wrong ends and outputs only: these want one message against another, which the light driver has more of."""
    monkeypatch.setattr(Scenario, "check", lambda self: None)
    plant(monkeypatch)
    for number in range(CORE_BUDGET):
        scenario = Scenario(1000 + number // 2, (2, 4)[number % 2], 0, faults=False)
        try:
            scenario.run()
            assert scenario.scheduler.num_divergences == 0
        except Exception as found:
            print(f"found in scenario {number + 1}: {type(found).__name__}: {found}")
            return
    pytest.fail(f"{plant.__name__} was not found in {CORE_BUDGET} scenarios")


def test_without_a_planted_bug_the_same_scenarios_pass() -> None:
    for profile, first in (("calm", 3), ("one", 1), ("alone", 0)):
        for seed in range(first, first + 3):
            outcome = try_plot(draw(seed, PROFILES[profile]))
            assert not isinstance(outcome, Found), f"{outcome}"
