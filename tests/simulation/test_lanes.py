"""Workers with several lanes: whatever happens, clients see what they see of workers with one."""

from __future__ import annotations

import pytest

from tests.simulation import lane_mutants
from tests.simulation.cores import LANE_KINDS, settings_of
from tests.simulation.hunts import Hunt, in_rings, in_scenarios
from tests.simulation.lanes import PipelineSimRunner
from tests.simulation.random_scenario import Scenario
from tests.simulation.ring.hunt import Found, try_plot
from tests.simulation.ring.profiles import PROFILES
from tests.simulation.ring.scenario import draw

SEEDS = 27
SEEDS_PER_TEST = 9


def run_one(seed: int) -> int:
    """Runs a scenario. Returns how many batches were launched beside others."""
    kind, inflight, drafts, settings = settings_of(seed, LANE_KINDS)
    scenario = Scenario(seed, inflight, drafts, **settings)
    try:
        scenario.run()
    except Exception as error:
        error.add_note(f"reproduce with Scenario({seed}, {inflight}, {drafts}, **{settings}), {kind}")
        raise
    runners = [node.runner for node in scenario.workers]
    return sum(each.pipeline.num_beside for each in runners if isinstance(each, PipelineSimRunner))


@pytest.mark.sampled
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_every_scenario_keeps_every_rule(first: int) -> None:
    """LA1, LA2, LA4, LA5, LA6: drafts, grammars, preemptions, pauses, recovery, windows, states, host and disk tier."""
    num_beside = sum(run_one(seed) for seed in range(first, first + SEEDS_PER_TEST))
    assert num_beside > 250, "the scenarios have become too easy"


@pytest.mark.sampled
@pytest.mark.timeout(300)
@pytest.mark.parametrize("profile", [name for name in PROFILES if name.startswith("lanes")])
def test_rings_keep_every_rule(profile: str) -> None:
    """LA1 to LA6, with links and processes: workers that are alone, bursts, hand-offs, numbers that are none."""
    for seed in range(10, 12):  # others than those of test_ring.py
        outcome = try_plot(draw(seed, PROFILES[profile]))
        assert not isinstance(outcome, Found), str(outcome)


HUNTS = [
    in_scenarios(plant, "lanes", run_one, Exception)
    for plant in (
        lane_mutants.row_stays_in_its_old_lane,
        lane_mutants.worker_forgets_lane_changes,
        lane_mutants.token_goes_to_the_wrong_lane,
        lane_mutants.chunk_overtakes,
        lane_mutants.nothing_is_waited_for,
        lane_mutants.rows_leave_lanes_out_of_turn,
        lane_mutants.empty_turns_are_not_sent,
        lane_mutants.all_rows_run_in_each_turn,
    )
] + [in_rings(lane_mutants.snapshots_forget_lanes, "lanes alone")]


@pytest.mark.sampled
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hunt", HUNTS, ids=str)
def test_a_planted_bug_is_found(hunt: Hunt, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt.run(monkeypatch)
