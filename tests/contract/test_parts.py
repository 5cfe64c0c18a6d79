"""Orders of parts (PT6): bytes on the wire stay, and both services read, validate and write one corpus of odd messages
alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_svc.core.parts.disk.loads import DISK
from scheduler_svc.core.parts.disk.stores import DiskOrders as SchedulerDisk
from scheduler_svc.core.parts.handoff.orders import HandoffOrders as SchedulerHandoffs
from scheduler_svc.core.parts.handoff.orders import ImportStart as SchedulerStart
from scheduler_svc.core.parts.pulls.part import PULLS
from scheduler_svc.core.parts.pulls.pull import PullOf
from scheduler_svc.core.parts.pulls.pull import PullOrders as SchedulerPulls
from scheduler_svc.core.state.requests.evidence import Process
from scheduler_svc.core.state.steps.fence import Fence
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.links.codec import delta as scheduler_delta
from signalbox.protocol.parts import codecs, disk, pulls
from signalbox.protocol.parts.blocks import GroupBlock, PartBounds
from signalbox.protocol.parts.codecs import read_orders, validate_orders, write_orders
from signalbox.protocol.parts.disk import DiskOrders, NamedBlock
from signalbox.protocol.parts.handoff import ExportOrder, HandoffOrders
from signalbox.protocol.parts.import_start import ImportStart
from signalbox.protocol.parts.lanes import LaneOrders
from signalbox.protocol.parts.names import WorkerName
from signalbox.protocol.parts.orders import Orders
from signalbox.protocol.parts.pulls import PullOrder, PullOrders
from signalbox.v1.to_worker_pb2 import SchedulerOutput
from tests.contract.odd_messages import OddMessages
from tests.contract.odd_orders import u16, u32
from worker_svc.links import delta as worker_delta

BOUNDS = PartBounds(num_slots=8, num_blocks=(16, 4), num_lanes=2)
NAME = WorkerName("a", "a-1")
KEY = b"key"
SEEDS = 800


class Place:
    """A worker at an end of a pull, or of a hand-off."""

    def __init__(self, name: str) -> None:
        self.process, self.address = Process(name, name + "-1"), name + ":9"
        self.info = self


class Going:
    """A hand-off, at its source."""

    source_slot, transfer, target_process, key = 4, 1 << 33, Process("t", "t-1"), b"k"


def blocks(*ids: int) -> Any:
    return np.array(ids, np.int32)


def pull(number: int) -> PullOf[Any]:
    shown, written = [blocks(1, 2), blocks(70000)], [blocks(3, 4), blocks(5)]
    return PullOf(number, KEY, Place("a"), Place("b"), 7, shown, written, 32, 0.0)


def named(group: int, block: int, name: bytes) -> NamedBlock:
    return NamedBlock(group, block, name)


def lanes_step() -> StepDecision:
    return StepDecision(7, orders={LaneOrders: LaneOrders([(1, 0), (300, 1)])})


def pulls_step() -> StepDecision:
    step = StepDecision(7, orders={SchedulerPulls: SchedulerPulls([pull(5)], [6, 1 << 40])})
    step.fetch = Fence(-7, source=PULLS, pull=pull(8), most_us=90000)
    return step


def disk_step() -> StepDecision:
    stores = [named(0, 9, bytes(16)), named(1, 3, bytes(range(16)))]
    step = StepDecision(7, orders={SchedulerDisk: SchedulerDisk(stores, [b"x" * 16], True)})
    step.fetch = Fence(-7, source=DISK, loads=[named(1, 70000, b"y" * 16)], most_us=80000)
    return step


def handoff_step() -> StepDecision:
    starts = [
        SchedulerStart(300, blocks(1, 2, 3), 2, ((1, blocks(8, 9)),)),
        SchedulerStart(5, blocks(7), 0, ((0, blocks(6)),)),
    ]
    going: Any = Going()
    orders = SchedulerHandoffs([], starts, [(1, 2), (3, 70000)], [going], [8, 9], [10], [(11, 3)])
    return StepDecision(7, orders={SchedulerHandoffs: orders})


def worker_orders(step: StepDecision) -> Orders:
    """Orders of the one part that a step has, as the worker reads them."""
    message = scheduler_delta.build_step(step, 41)
    (orders,) = worker_delta.parse_step(
        SchedulerOutput.FromString(message.SerializeToString())
    ).orders.values()
    return orders


GOLDEN = {
    "lanes": (
        lanes_step,
        "08071029a2010401002c01aa01020001",
        LaneOrders([(1, 0), (300, 1)]),
    ),
    "pulls": (
        pulls_step,
        "08071029b201670a2d080812036b65791a080a01611203612d312203613a392a03000001320c03000000040000000500"
        "00003890bf051224080512036b65791a080a01621203622d3122030000012a0c0100000002000000701101001a100600"
        "0000000000000000000000010000",
        PullOrders(
            PullOrder(7, 8, KEY, NAME, "a:9", [GroupBlock(0, 3), GroupBlock(0, 4), GroupBlock(1, 5)], 90000),
            [
                pulls.ExportOrder(
                    5, KEY, WorkerName("b", "b-1"), [GroupBlock(0, 1), GroupBlock(0, 2), GroupBlock(1, 70000)]
                )
            ],
            [6, 1 << 40],
        ),
    ),
    "disk": (
        disk_step,
        "080710299a01670a1b0a01011204701101001a10797979797979797979797979797979791080f1041a300a0200011208"
        "09000000030000001a2000000000000000000000000000000000000102030405060708090a0b0c0d0e0f221078787878"
        "7878787878787878787878782801",
        DiskOrders(
            7,
            [disk.NamedBlock(1, 70000, b"y" * 16)],
            80000,
            [disk.NamedBlock(0, 9, bytes(16)), disk.NamedBlock(1, 3, bytes(range(16)))],
            [b"x" * 16],
            True,
        ),
    ),
    "handoff": (
        handoff_step,
        "08071029920191010a500a042c010500120803000000010000001a100100000002000000030000000700000022080200"
        "0000000000002a220a080100000000000000120802000000010000001a0c080000000900000006000000120401000300"
        "1a020400220800000000020000002a080a01741203742d3132016b3a040800090042020a004a020b005204030000005a"
        "080200000070110100",
        HandoffOrders(
            kept_slots=[8, 9],
            thawed=[(11, 3)],
            exports=[ExportOrder(4, 1 << 33, WorkerName("t", "t-1"), b"k")],
            frozen_slots=[10],
            import_starts=[
                ImportStart(300, [1, 2, 3], 2, ((1, [8, 9]),)),
                ImportStart(5, [7], 0, ((0, [6]),)),
            ],
            committed_slots=[1, 3],
            committed_legs=[2, 70000],
        ),
    ),
}
"""By part: a step with orders of all kinds, its bytes before these codecs, and what a worker reads in it."""


@pytest.mark.parametrize("part", GOLDEN)
def test_bytes_are_those_before_the_codecs(part: str) -> None:
    """M4."""
    step, raw, orders = GOLDEN[part]
    assert scheduler_delta.build_step(step(), 41).SerializeToString(deterministic=True).hex() == raw
    assert worker_orders(step()) == orders


# -- one corpus for both services --

slots, counts = st.integers(0, 9), st.lists(st.integers(0, 9), max_size=3)
group_blocks = st.lists(st.builds(GroupBlock, st.integers(0, 2), st.integers(0, 17)), max_size=3)
named_blocks = st.lists(
    st.builds(disk.NamedBlock, st.integers(0, 2), st.integers(0, 17), st.binary(min_size=16, max_size=16)),
    max_size=3,
)
names = st.builds(WorkerName, st.sampled_from(["", "a", "w" * 300]), st.sampled_from(["", "i"]))
keys = st.sampled_from([b"", KEY, b"k" * 300])
numbers = st.integers(0, (1 << 64) - 1)


@st.composite
def handoffs(draw: st.DrawFn) -> HandoffOrders:
    num_groups = draw(st.integers(0, 2))
    ids = st.lists(st.integers(0, 17), min_size=1, max_size=3)
    tables = st.tuples(*[st.tuples(st.integers(0, 3), ids)] * num_groups)
    committed = draw(counts)
    return HandoffOrders(
        kept_slots=draw(counts),
        thawed=draw(st.lists(st.tuples(slots, st.integers(0, 9)), max_size=2)),
        exports=draw(st.lists(st.builds(ExportOrder, slots, numbers, names, keys), max_size=2)),
        frozen_slots=draw(counts),
        import_starts=draw(
            st.lists(st.builds(ImportStart, slots, ids, st.integers(0, 3), tables), max_size=2)
        ),
        committed_slots=committed,
        committed_legs=draw(st.sampled_from([[], [3] * len(committed)])),
    )


any_orders = st.one_of(
    handoffs(),
    st.builds(LaneOrders, st.lists(st.tuples(slots, st.integers(0, 3)), min_size=1, max_size=3)),
    st.builds(
        DiskOrders,
        st.just(7),
        named_blocks,
        numbers,
        named_blocks,
        st.lists(st.binary(min_size=16, max_size=16), max_size=2),
        st.booleans(),
    ),
    st.builds(
        PullOrders,
        st.none()
        | st.builds(PullOrder, st.just(7), numbers, keys, names, st.just("a:1"), group_blocks, numbers),
        st.lists(st.builds(pulls.ExportOrder, numbers, keys, names, group_blocks), max_size=2),
        st.lists(numbers, max_size=2),
    ),
)


@settings(deadline=None, max_examples=300)
@given(any_orders)
def test_orders_are_read_as_they_were_written(orders: Orders) -> None:
    """PT6: and are validated by a sentence, or not at all."""
    message = SchedulerOutput(step_id=7)
    write_orders(message, orders)
    found = read_orders(SchedulerOutput.FromString(message.SerializeToString()))
    assert found == {type(orders): orders}
    check(found)


def check(found: dict[type[Orders], Orders]) -> str | None:
    """Validates orders, and writes and reads them once more."""
    reason = validate_orders(found, BOUNDS)
    assert reason is None or reason.startswith(("it ", "slot ", "its ")), reason
    if reason is None:
        check_bounds(found)
    again = SchedulerOutput(step_id=7)
    for orders in found.values():
        write_orders(again, orders)
    assert read_orders(again) == found
    return reason


def check_bounds(found: dict[type[Orders], Orders]) -> None:
    """K10: nothing that is taken names what does not exist."""
    for orders in found.values():
        assert all(slot < BOUNDS.num_slots for slot in orders.slots)
        blocks = [(each.group, each.block) for each in orders.touched]
        for table in orders.tables:
            blocks += [(g, b) for g in range(1 + len(table.groups)) for b in table.blocks_of(g)]
        assert all(group < 2 and block < BOUNDS.num_blocks[group] for group, block in blocks)
        if isinstance(orders, LaneOrders):
            assert all(lane < BOUNDS.num_lanes for _, lane in orders.changes)


COLUMNS = (
    *(b"", b"\x00", u16(0), u16(0, 1), u16(7), u16(9)),
    *(u32(0), u32(3), u32(3, 4), u32(1, 1), u32(17), u32(3, 17), u32(3, 17, 18)),
    *(bytes(16), bytes(32)),
)
NAMES = (
    *("slots", "block_counts", "block_ids", "num_found", "firsts", "groups", "hashes", "drops"),
    *("kept_slots", "frozen_slots", "thawed_slots", "thawed_legs", "committed_slots", "committed_legs"),
    *("export_slots", "export_transfers", "ended_exports", "lane_slots", "lanes"),
)
KNOWN = dict.fromkeys(NAMES, COLUMNS) | {"key": (b"", KEY)}


FITTING: list[Orders] = [
    LaneOrders([(1, 0), (3, 1)]),
    PullOrders(
        PullOrder(7, 8, KEY, NAME, "a:9", [GroupBlock(0, 3), GroupBlock(1, 3)], 90000),
        [pulls.ExportOrder(5, KEY, NAME, [GroupBlock(0, 1), GroupBlock(0, 2)])],
        [6],
    ),
    DiskOrders(7, [disk.NamedBlock(1, 2, bytes(16))], 80000, [disk.NamedBlock(0, 9, bytes(16))], [bytes(16)]),
    HandoffOrders(
        kept_slots=[1],
        thawed=[(2, 3)],
        exports=[ExportOrder(4, 1 << 33, NAME, KEY)],
        frozen_slots=[5],
        import_starts=[ImportStart(6, [1, 2, 3], 2, ((1, [0, 1]),)), ImportStart(7, [7], 0, ((0, [2]),))],
        committed_slots=[3],
        committed_legs=[70000],
    ),
]
"""Orders of each part that fit a worker of these bounds."""


def odd_message(seed: int) -> SchedulerOutput | None:
    """A step with orders made by their description, or true ones damaged; None: it is no message."""
    odd, message = OddMessages(("parts", seed), KNOWN), SchedulerOutput()
    for orders in odd.rng.sample(FITTING, odd.rng.choice((1, 1, 2))):
        write_orders(message, orders)
    if odd.rng.random() < 0.3:
        body: Message = odd.rng.choice([message.pulls, message.disk, message.handoffs, message])
        odd.make(body)
    else:
        odd.damage(message)
    try:
        return SchedulerOutput.FromString(odd.bytes_of(message))
    except DecodeError:
        return None


def read_corpus() -> dict[str, int]:
    """Reads, validates and writes all odd messages. Returns how many had which outcome."""
    outcomes = {"unread": 0, "refused": 0, "taken": 0}
    for seed in range(SEEDS):
        message = odd_message(seed)
        if message is None:
            continue
        message.step_id = 7
        try:
            found = read_orders(message)
        except ValueError:
            outcomes["unread"] += 1
            continue
        outcomes["refused" if check(found) else "taken"] += 1
    return outcomes


def test_odd_messages_give_orders_or_a_reason() -> None:
    """PT6, K10: no other error, with whatever bytes."""
    outcomes = read_corpus()
    assert all(count > SEEDS / 40 for count in outcomes.values()), outcomes


@pytest.mark.parametrize("kind", [codec.kind for codec in codecs.CODECS])
def test_orders_that_nobody_validates_are_found(kind: type[Orders], monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: orders of one part are taken as they come."""
    codec = next(each for each in codecs.CODECS if each.kind is kind)
    careless = codec._replace(validate=lambda orders, bounds: None)
    monkeypatch.setitem(codecs._BY_KIND, kind, careless)
    with pytest.raises(AssertionError):
        read_corpus()


def test_a_table_that_ends_nowhere_fits_no_worker() -> None:
    """K10: 32 bits of the wire do not fit the worker's columns."""
    start = ImportStart(0, [1, 2], groups=(((1 << 32) - 1, [1]),))
    orders = HandoffOrders(import_starts=[start])
    assert validate_orders({HandoffOrders: orders}, BOUNDS) == (
        "a table of group 1 ends at block 4294967296, and the first group has 16"
    )


def test_parts_do_not_write_what_others_touch() -> None:
    """PT9."""
    order = PullOrder(7, 1, KEY, NAME, "a:1", [GroupBlock(0, 3)], 1)
    shown = pulls.ExportOrder(2, KEY, NAME, [GroupBlock(0, 4)])
    load, store, other = (disk.NamedBlock(0, block, bytes(16)) for block in (4, 3, 5))

    def reason(pulled: PullOrders, stored: DiskOrders) -> str | None:
        return validate_orders({PullOrders: pulled, DiskOrders: stored}, BOUNDS)

    assert reason(PullOrders(order), DiskOrders(7, [other], 1, [load])) is None
    assert reason(PullOrders(exports=[shown]), DiskOrders(7, stores=[load])) is None
    assert "that its disk" in (reason(PullOrders(order), DiskOrders(7, stores=[store])) or "")
    assert "that its disk" in (reason(PullOrders(order), DiskOrders(7, [store], 1)) or "")
    assert "that its pulls" in (reason(PullOrders(exports=[shown]), DiskOrders(7, [load], 1)) or "")
