"""What the scheduler knows of a worker's disk, and what it orders of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scheduler_svc.core.parts.disk.index import MOST_WISHES, DiskIndex
from scheduler_svc.core.state.blocks.block_pool import HASH_DTYPE
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.step.report import DivergenceError
from scheduler_svc.links.codec.delta import build_step
from scheduler_svc.links.codec.events import take_event
from signalbox.v1 import from_worker_pb2
from tests.scheduler_svc.harness import WORKER, make_scheduler
from worker_svc.links.delta import parse_step

NAMES = [number.to_bytes(16, "little") for number in range(1, 30)]


def hashes(*names: bytes) -> Any:
    return np.array(names, HASH_DTYPE)


def test_a_wish_is_ordered_once() -> None:
    """DT4: until it is known to be there, or not to be."""
    disk = DiskIndex(2)
    disk.add(0, NAMES[:1])
    disk.wish(0, hashes(*NAMES[:3]))
    assert disk.take_wishes(10) == [(0, NAMES[1]), (0, NAMES[2])]
    disk.wish(0, hashes(*NAMES[:3]))
    assert not disk.has_orders
    disk.remove(0, [NAMES[1]])
    disk.add(0, [NAMES[2]])
    disk.wish(0, hashes(*NAMES[:3]))
    assert disk.take_wishes(10) == [(0, NAMES[1])]


def test_wishes_are_bounded() -> None:
    """DT5: the oldest are given up."""
    disk = DiskIndex(1)
    names = [number.to_bytes(16, "big") for number in range(MOST_WISHES + 5)]
    disk.wish(0, hashes(*names))
    assert disk.take_wishes(1) == [(0, names[5])]


def test_what_is_wrong_is_nowhere_any_more() -> None:
    """DT6: in no group, whether it is there or to be stored; and the worker is told."""
    disk = DiskIndex(2)
    disk.add(1, NAMES[:2])
    disk.wish(0, hashes(NAMES[0], NAMES[2]))
    disk.drop(NAMES[:1])
    assert disk.has(1, hashes(*NAMES[:2])).tolist() == [False, True]
    assert disk.take_wishes(5) == [(0, NAMES[2])]
    assert disk.take_drops() == (NAMES[:1], False) and disk.take_drops() == ([], False)


def test_a_reset_forgets_all() -> None:
    """DT6, C7."""
    disk = DiskIndex(1)
    disk.add(0, NAMES[:2])
    disk.wish(0, hashes(NAMES[3]))
    disk.clear()
    assert not disk.has(0, hashes(*NAMES[:4])).any() and not disk.take_wishes(5)
    assert disk.take_drops() == ([], True)


def test_who_knows_no_disk_orders_nothing_and_leaves_news_out() -> None:
    """DT9, R10: a step without orders has no word of a disk, and an event of an unknown kind changes nothing."""
    message = build_step(StepDecision(1), 1)
    assert not message.HasField("disk") and not parse_step(message).orders
    unknown = from_worker_pb2.WorkerEvent.FromString(
        b"\xfa\x3f\x02\x08\x01"
    )  # of a field that does not exist yet
    core: Any = None
    take_event(core, "worker-0", unknown, 0.0)


@pytest.mark.parametrize(
    "said",
    [
        {"disk_news": {"groups": [{"group": 0, "added": b"x" * 17}]}},
        {"disk_news": {"groups": [{"group": 0, "removed": b"x"}]}},
        {"disk_loads_ended": {"step_id": 1, "lost": b"xyz"}},
    ],
)
def test_what_cannot_be_read_ends_the_link_alone(said: dict[str, Any]) -> None:
    """DT9: the worker is asked for its snapshot, as with any other message."""
    core = make_scheduler()
    with pytest.raises(DivergenceError, match="what it says of its disk cannot be read"):
        take_event(core, WORKER, from_worker_pb2.WorkerEvent(**said), 0.0)
    take_event(core, WORKER, from_worker_pb2.WorkerEvent(disk_loads_ended={"step_id": 9, "lost": b""}), 0.0)
    take_event(core, WORKER, from_worker_pb2.WorkerEvent(disk_news={"groups": [{"group": 99}]}), 0.0)
    core.check_integrity()
