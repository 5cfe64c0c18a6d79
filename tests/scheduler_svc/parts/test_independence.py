"""Parts that claim to be independent (PT3) are asked in both orders, in random scenarios: steps are the same, byte for
byte. What they claim is compared with what they do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from types import MappingProxyType

import pytest

from scheduler_svc.core.parts.checkpoints.part import CheckpointsPart
from scheduler_svc.core.parts.disk.index import DiskIndex
from scheduler_svc.core.parts.disk.part import DiskPart
from scheduler_svc.core.parts.disk.stores import wish_for
from scheduler_svc.core.parts.handoff.part import HandoffPart
from scheduler_svc.core.parts.pulls.part import PullsPart
from scheduler_svc.core.state.part import Claim, Phase, Resource
from scheduler_svc.core.state.worker import Worker
from tests.scheduler_svc.parts.claims import Act, Pair, pairs, part_classes, turned_round, watched
from tests.scheduler_svc.parts.world import KINDS, World
from tests.simulation.counts import FULL_COUNTS

NUM_SCENARIOS = 200 if FULL_COUNTS else 20
WATCHED_SEEDS = 8
BOUND = 400
"""Scenarios within which a planted bug has to show."""
APART = {frozenset({"checkpoints", "pulls"})}
"""Never on one worker: who keeps states reads no blocks from others (PB1)."""
INDEPENDENT = [pair for pair in pairs() if pair.is_independent]
PARTS = {
    kind: {part.name for seed in range(10) for part in World(seed, kind).core.workers["w0"].parts.all}
    for kind in KINDS
}
"""Parts that workers have, by kind of scenario."""
TOGETHER = [(pair, kind) for pair in INDEPENDENT for kind in KINDS if pair.names <= PARTS[kind]]
Patch = pytest.MonkeyPatch


def differs(pair: Pair, seed: int, kind: str) -> bool:
    """The scenario goes another way when the two are asked in the other order."""
    steps = World(seed, kind, checks=False).run()
    with turned_round(pair):
        return World(seed, kind, checks=False).run() != steps


def num_together(pair: Pair, acts: Iterable[Act]) -> int:
    """Steps in which both act."""
    here = [act for act in acts if act.phase is pair.phase and act.part in pair.names]
    steps = Counter((act.worker, act.step_id) for act in here)
    return sum(number == 2 for number in steps.values())


def test_all_pairs_that_claim_independence_are_tried() -> None:
    """PT3, PB1."""
    tried = {pair for pair, _ in TOGETHER}
    assert {pair.names for pair in INDEPENDENT if pair not in tried} == APART
    assert "order-disk-pulls" in set(map(str, tried))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("pair", "kind"), TOGETHER, ids=str)
def test_the_order_of_independent_parts_does_not_matter(pair: Pair, kind: str) -> None:
    """PT3."""
    count = 0
    for seed in range(NUM_SCENARIOS):
        with watched() as acts:
            assert not differs(pair, seed, kind), f"World({seed}, {kind!r}) goes another way"
        count += num_together(pair, acts)
    assert count, "the two never act in one step: this shows nothing"


def test_parts_write_what_they_claim() -> None:
    """PT3: neither more nor less."""
    claims = {(part.name, phase): part.acts[phase].writes for part in part_classes() for phase in part.acts}
    written: dict[tuple[str, Phase], set[Resource]] = {each: set() for each in claims}
    for seed in range(WATCHED_SEEDS):
        for kind in KINDS:
            with watched(prints=True) as acts:
                World(seed, kind).run()
            for act, changed in acts.items():
                undue = changed - claims[act.part, act.phase]
                assert not undue, f"{act} writes {undue}, and does not claim that"
                written[act.part, act.phase] |= changed
    assert written == claims


# -- planted --


def handoff_takes_blocks_among_the_orders(patch: Patch) -> tuple[Pair, str]:
    """Takes and grants blocks in the last phase, and claims nothing of it."""
    acts = {Phase.FINISH: HandoffPart.acts[Phase.FINISH], Phase.ORDER: Claim()}
    patch.setattr(HandoffPart, "acts", MappingProxyType(acts))
    return Pair(Phase.ORDER, DiskPart, HandoffPart), "pulls"


def disk_holds_states(patch: Patch) -> tuple[Pair, str]:
    """Stores checkpoints, too, and claims blocks alone."""

    def wish_for_states(worker: Worker, index: DiskIndex, slot: int) -> None:
        wish_for(worker, index, slot)
        if worker.checkpoints is not None:
            index.wish(len(worker.pools), worker.table.hashes(slot, 0, int(worker.table.num_hashes[slot])))

    patch.setattr("scheduler_svc.core.parts.disk.part.wish_for", wish_for_states)
    return Pair(Phase.ORDER, CheckpointsPart, DiskPart), "states"


@pytest.mark.parametrize("plant", [handoff_takes_blocks_among_the_orders, disk_holds_states])
def test_a_planted_bug_of_a_claim_is_found_by_the_order(
    plant: Callable[[Patch], tuple[Pair, str]], monkeypatch: Patch
) -> None:
    """PT3: two parts claim independence, and are not."""
    pair, kind = plant(monkeypatch)
    assert pair.is_independent
    assert any(differs(pair, seed, kind) for seed in range(BOUND)), "it was not found"


def test_a_planted_bug_of_a_claim_is_found_by_what_is_written(monkeypatch: Patch) -> None:
    """PT3: by one part alone, whoever else acts."""
    acts = dict.fromkeys(HandoffPart.acts, Claim())
    monkeypatch.setattr(HandoffPart, "acts", MappingProxyType(acts))
    with pytest.raises(AssertionError, match="does not claim"):
        test_parts_write_what_they_claim()


def disk_excludes_nothing(patch: Patch) -> None:
    """PT4: loads are added to a step that has begun a pull."""
    patch.setattr(DiskPart, "may_fetch", lambda part, step: True)


def pulls_exclude_no_pull(patch: Patch) -> None:
    """PT4: a step begins two."""
    patch.setattr(PullsPart, "shares_step", True)


def pulls_exclude_no_load(patch: Patch) -> None:
    """PT4: a pull is added to a step that has begun loads."""
    patch.setattr(PullsPart, "may_fetch", lambda part, step: step.fetch is None or step.fetch.pull is None)


@pytest.mark.parametrize("plant", [disk_excludes_nothing, pulls_exclude_no_pull, pulls_exclude_no_load])
def test_a_planted_bug_of_an_exclusion_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """PT4: blocks are published that nobody has brought."""
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"not told of|two sources fetch"):
        for seed in range(BOUND):
            World(seed, "pulls").run()
