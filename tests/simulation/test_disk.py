"""A disk that workers share, that loses things, is slow, and outlives them: what is loaded under a wrong name, or
stored after it was given away, shows as a wrong token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from scheduler_svc.core.parts.disk import loads, part, stores
from scheduler_svc.core.parts.disk.index import DiskIndex
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.links.codec import disk as links
from signalbox.protocol.parts import disk as codec
from tests.simulation.disk import NodeDisk, SharedDisk
from tests.simulation.hunts import Hunt, in_scenarios
from tests.simulation.random_scenario import Scenario
from worker_svc.core.faults.isolation import RunnerBrokenError

SEEDS = {"spine": 8, "windows": 4, "host tier": 4}
"""By kind; a disk loses things in few scenarios."""
KINDS: dict[str, dict[str, bool]] = {
    "spine": {},
    "windows": {"has_groups": True},
    "host tier": {"has_groups": True, "has_host_tier": True},
}
Patch = pytest.MonkeyPatch


@pytest.mark.sampled
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_every_scenario_keeps_every_rule(kind: str) -> None:
    """DT3, DT4, DT5, C1, Y1."""
    outcomes = [
        Scenario(seed, inflight, drafts, has_disk=True, **KINDS[kind]).run()
        for seed in range(SEEDS[kind])
        for inflight, drafts in ((1, 0), (2, 0), (4, 3))
    ]
    assert sum(outcome.num_disk_hit_tokens for outcome in outcomes)
    assert sum(outcome.num_disk_lost for outcome in outcomes) or kind != "spine"
    assert sum(outcome.num_attempts - outcome.num_requests for outcome in outcomes), "nothing was replayed"


def loaded_under_anothers_name(patch: Patch) -> None:
    """DT1, DT2: a record is another content's, and no checksum tells."""

    def read(self: SharedDisk, group: int, name: bytes) -> bytes | None:
        others = [content for place, content in self.contents.items() if place[0] == group]
        return others[0] if others else None

    patch.setattr(SharedDisk, "read", read)


def stored_after_it_was_given_away(patch: Patch) -> None:
    """DT4: nothing holds what is to be stored until it has been read."""
    order_stores = stores.order_stores

    def order(worker: Worker, disk: DiskIndex, step: Any) -> None:
        order_stores(worker, disk, step)
        stores.end_stores(worker, disk, step.step_id)

    patch.setattr(part, "order_stores", order)
    patch.setattr("tests.simulation.scenario.check_owned", lambda *_: None)
    patch.setattr("tests.simulation.worker_node.check_orders", lambda *_: None)


def what_was_lost_is_published(patch: Patch) -> None:
    """DT3: a load that did not arrive is taken for one that did."""
    end = loads.end_loads
    patch.setattr(links, "end_loads", lambda worker, disk, step_id, lost: end(worker, disk, step_id, ()))


def started_before_its_loads_have_ended(patch: Patch) -> None:
    """DT3: what is being loaded can be hit."""
    aside = loads.load_aside

    def begin_and_end(worker: Worker, disk: DiskIndex, *others: Any) -> None:
        aside(worker, disk, *others)
        loads.end_loads(worker, disk, others[-1].step_id, ())

    patch.setattr(part, "load_aside", begin_and_end)
    patch.setattr("tests.simulation.scenario.check_owned", lambda *_: None)


def loads_outlive_their_link(patch: Patch) -> None:
    """DT5, J8: what an old link ordered writes to blocks that are others' by now."""
    patch.setattr(NodeDisk, "wait", lambda self: None)
    patch.setattr("tests.simulation.scenario.check_owned", lambda *_: None)


def blocks_are_loaded_into_others(patch: Patch) -> None:
    """DT3: the blocks of a load are mixed up on the wire."""
    write = codec._write_blocks

    def mixed(message: Any, blocks: Sequence[Any]) -> None:
        write(
            message,
            [each._replace(block=other.block) for each, other in zip(blocks, blocks[::-1], strict=True)],
        )

    patch.setattr(codec, "_write_blocks", mixed)


def hunt_in(plant: Callable[[Patch], None], kind: str) -> Hunt:
    """A hunt in scenarios with a disk of this kind."""

    def run(seed: int) -> None:
        Scenario(seed, (2, 4, 1)[seed % 3], 0, has_disk=True, **KINDS[kind]).run()

    return in_scenarios(plant, kind, run, AssertionError, IndexError, RunnerBrokenError)


HUNTS = [
    hunt_in(loaded_under_anothers_name, "spine"),
    hunt_in(stored_after_it_was_given_away, "spine"),
    hunt_in(what_was_lost_is_published, "spine"),
    hunt_in(started_before_its_loads_have_ended, "spine"),
    hunt_in(loads_outlive_their_link, "spine"),
    hunt_in(blocks_are_loaded_into_others, "host tier"),
]


@pytest.mark.sampled
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hunt", HUNTS, ids=str)
def test_a_planted_bug_is_found(hunt: Hunt, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt.run(monkeypatch)
