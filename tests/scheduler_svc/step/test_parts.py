"""Parts of a worker: which it has, when a step asks them, and what they order and hold (PT1 to PT5, PT8)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from scheduler_svc.core.cluster.term import Term
from scheduler_svc.core.parts import make
from scheduler_svc.core.parts.disk.news import DiskNews
from scheduler_svc.core.parts.disk.part import (
    DiskPart,
    disk_of,
    drop_on_disk,
    take_disk_news,
    take_over_drops,
)
from scheduler_svc.core.parts.disk.stores import DiskOrders
from scheduler_svc.core.parts.fetch.longer_prefix import begin_fence
from scheduler_svc.core.parts.pulls.part import PullsPart
from scheduler_svc.core.recovery.snapshot import make_worker
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.part import Claim, Part, Phase, Source
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.state.worker_check import check_state
from scheduler_svc.core.step.fetches import begin_fetch, find_fetch
from scheduler_svc.links.codec.delta import WRITE_FETCH, WRITE_ORDERS, parse_offer
from signalbox.protocol.block_groups import StateGroup
from signalbox.v1 import from_worker_pb2, shared_pb2
from tests.scheduler_svc.harness import WORKER, make_info, make_request, make_scheduler

NAME = b"a" * 16
STATES = StateGroup(8, 4, num_host_checkpoints=0)


@dataclass
class Orders:
    """What `Noting` tells a worker."""

    phases: list[Phase] = field(default_factory=list)


class Noting(Part):
    """Notes when it is asked, and has an order while it `wants`."""

    name = "noting"
    rank = 99
    acts = MappingProxyType(dict.fromkeys((Phase.FINISH, Phase.PREEMPT, Phase.COPY, Phase.ORDER), Claim()))

    def __init__(self) -> None:
        self.wants = False
        self.asked: list[Phase] = []

    @property
    def has_orders(self) -> bool:
        """As `Part.has_orders`."""
        return self.wants

    def act(self, phase: Phase, step: StepDecision, now: float) -> None:
        """As `Part.act`."""
        self.asked.append(phase)
        if phase is Phase.ORDER and self.wants:
            step.order(Orders).phases = self.asked
            self.wants = False


class Shelf(Source):
    """A source that has something for everybody."""

    def __init__(self, worker: Worker, name: str, rank: int, *, shares_step: bool = False) -> None:
        self.worker = worker
        self.name, self.rank, self.shares_step = name, rank, shares_step  # type: ignore[misc]

    def find(self, request: Any, prefix: Any, needs: list[int], now: float) -> str | None:
        """As `Source.find`."""
        return self.name

    def fetch(self, request: Any, plan: Any, needs: list[int], step: StepDecision, now: float) -> None:
        """As `Source.fetch`."""
        begin_fence(self.worker, step, plan)
        request.history.loaded_on = plan


@pytest.mark.parametrize(
    ("names", "fields"),
    [
        ([], {}),
        (["lanes"], {"num_lanes": 2}),
        (["checkpoints"], {"state_group": STATES}),
        (["handoff"], {"kv_layout": "layout"}),
        (["lanes", "checkpoints", "handoff"], {"num_lanes": 2, "state_group": STATES, "kv_layout": "layout"}),
    ],
)
def test_a_worker_has_the_parts_that_its_hello_names(names: list[str], fields: dict[str, Any]) -> None:
    """PT1: in the order in which they act."""
    worker = make_worker(make_info(**fields), None, SchedulerConfig(), None, Term("s", 1))
    assert [part.name for part in worker.parts.all] == names


def test_the_disk_tier_is_a_part_from_its_first_word_on() -> None:
    """PT1, DT3. Contents that are wrong are remembered for it; the index begins with its news."""
    scheduler = make_scheduler()
    worker = scheduler.workers[WORKER]
    assert worker.parts.get(DiskPart) is None and disk_of(worker) is None
    drop_on_disk(worker, [NAME])
    assert worker.parts.all == ()
    take_disk_news(worker, DiskNews(begins=True))
    assert worker.parts.has_orders
    step = scheduler.schedule(WORKER, 0.0)
    assert step is not None and step.order(DiskOrders).drops == [NAME]


@pytest.mark.parametrize("has_told", [False, True])
def test_contents_to_be_deleted_outlive_a_link(has_told: bool) -> None:
    """DT6: whether the worker had told of its disk or not."""
    worker, again = (make_scheduler().workers[WORKER] for _ in range(2))
    if has_told:
        take_disk_news(worker, DiskNews(begins=True))
    drop_on_disk(worker, [NAME])
    take_over_drops(again, worker)
    take_disk_news(again, DiskNews(begins=True))
    index = disk_of(again)
    assert index is not None and index.take_drops() == ([NAME], False)


def noting() -> tuple[Any, Noting]:
    """A scheduler whose worker has that part."""
    scheduler, part = make_scheduler(), Noting()
    scheduler.workers[WORKER].parts.add(part)
    return scheduler, part


def test_phases_follow_each_other() -> None:
    """PT3, K3."""
    scheduler, part = noting()
    scheduler.submit(make_request("r", 5), 0.0)
    assert scheduler.schedule(WORKER, 0.0) is not None
    assert part.asked == [Phase.FINISH, Phase.PREEMPT, Phase.COPY, Phase.ORDER]


def test_a_part_that_is_idle_does_not_act() -> None:
    """PT1."""
    scheduler, part = noting()
    part.is_idle = True
    scheduler.submit(make_request("r", 5), 0.0)
    assert scheduler.schedule(WORKER, 0.0) is not None and not part.asked


def test_work_alone_makes_a_step() -> None:
    """PT2: of a part that has orders only once it is asked."""

    class Working(Noting):
        """Has work, and says so only with its orders."""

        @property
        def has_orders(self) -> bool:
            """As `Part.has_orders`."""
            return False

        def has_work(self) -> bool:
            """As `Part.has_work`."""
            return self.wants

    scheduler, part = make_scheduler(), Working()
    part.wants = True
    scheduler.workers[WORKER].parts.add(part)
    step = scheduler.schedule(WORKER, 0.0)
    assert step is not None and step.ordered(Orders) is not None


def test_every_kind_of_orders_and_fetches_has_a_writer() -> None:
    """PT2: a step that could not be written would be in flight, and never sent."""
    folder = Path(make.__file__).parent
    text = "".join(path.read_text() for path in folder.rglob("*.py"))
    assert {kind.__name__ for kind in WRITE_ORDERS} == set(re.findall(r"step\.order\((\w+)\)", text))
    sources = {kind.name for kind in (DiskPart, PullsPart)}
    assert WRITE_FETCH.keys() == sources


def test_an_order_makes_a_step_that_has_nothing_else() -> None:
    """PT2: and a step without one is not sent."""
    scheduler, part = noting()
    assert scheduler.schedule(WORKER, 0.0) is None and not part.asked
    part.wants = True
    step = scheduler.schedule(WORKER, 0.0)
    assert step is not None and step.ordered(Orders) == Orders(list(part.acts))
    assert not step.only_decodes and scheduler.schedule(WORKER, 0.0) is None


@pytest.mark.parametrize(
    ("first", "second", "shares"),
    [("disk", "disk", True), ("disk", "pulls", False), ("pulls", "pulls", False), ("pulls", "disk", False)],
)
def test_a_step_begins_fetches_of_one_source_and_of_a_pull_only_one(
    first: str, second: str, shares: bool
) -> None:
    """PT4."""
    shares_step = {"disk": DiskPart.shares_step, "pulls": PullsPart.shares_step}
    worker = make_scheduler().workers[WORKER]
    step, requests = StepDecision(1), [make_request(name, 9) for name in "ab"]
    for request, name in zip(requests, (first, second), strict=True):
        worker.parts.add(Shelf(worker, name, 40, shares_step=shares_step[name]))
        fetch = find_fetch(worker, request, None, [], 0.0)  # type: ignore[arg-type]
        assert fetch is not None
        begin_fetch(fetch, request, [], step, 0.0)
    assert [request.history.loaded_on for request in requests] == [first, second if shares else ""]


def test_sources_are_asked_by_rank() -> None:
    """PT4: and a worker without any asks nobody."""
    worker = make_scheduler().workers[WORKER]
    request = make_request("r", 9)
    assert find_fetch(worker, request, None, [], 0.0) is None  # type: ignore[arg-type]

    class Second(Shelf):
        """Another kind."""

    worker.parts.add(Second(worker, "second", 50))
    worker.parts.add(Shelf(worker, "first", 40))
    fetch = find_fetch(worker, request, None, [], 0.0)  # type: ignore[arg-type]
    assert fetch is not None and fetch.plan == "first"


def test_blocks_that_a_part_holds_are_held_by_its_word_alone() -> None:
    """PT5."""

    class Holding(Noting):
        """Holds a block."""

        def __init__(self, worker: Worker) -> None:
            super().__init__()
            self._blocks = worker.pool.take(1)

        def pinned(self, group: int) -> list[Any]:
            """As `Part.pinned`."""
            return [self._blocks]

    worker = make_scheduler().workers[WORKER]
    worker.parts.add(Holding(worker))
    check_state(worker)
    worker.pool.take(1)
    with pytest.raises(AssertionError):
        check_state(worker)


def test_a_part_in_a_hello_that_the_scheduler_does_not_know_is_ignored() -> None:
    """PT8, R10: as a field that a later release has added."""
    model = shared_pb2.ModelEntry(model="m", block_size=4, max_model_len=64)
    hello = from_worker_pb2.WorkerHello(
        worker_id="w", model=model, num_slots=4, num_blocks=32, num_lanes=2, kv_layout="layout"
    )
    unknown = b"\xf2\x3e\x07adapter"  # field 1006, of 7 bytes
    later = from_worker_pb2.WorkerHello.FromString(hello.SerializeToString() + unknown)
    offers = [parse_offer(each) for each in (hello, later)]
    assert offers[0] == offers[1]
    workers = [make_worker(each, None, SchedulerConfig(), None, Term("s", 1)) for each in offers]
    assert [part.name for part in workers[1].parts.all] == ["lanes", "handoff"]
