"""What a hello says of itself is bounded (W1): in slots, parts, bytes and time; in its figures and its names."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from scheduler_svc.core.cluster.offer import MAX_BLOCKS
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.blocks.block_pool import BlockPool
from scheduler_svc.core.state.blocks.host_cache import HostCache
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.links import worker_link
from scheduler_svc.links.worker_link import SNAPSHOT_FIELD, WorkerSession
from scheduler_svc.step_loop import StepLoop
from signalbox.errors import InvalidRequestError
from signalbox.v1 import from_frontend_pb2, from_worker_pb2, shared_pb2
from tests.scheduler_svc.attached import RelayStream, dial, make_event, make_hello, serve
from tests.scheduler_svc.blocks.test_snapshot_parts import make_slot

U32_MAX = (1 << 32) - 1
NUM_SLOTS = 8
"""That the hellos offer."""


class Peer:
    """A worker's stream to a scheduler that hears a tick every 0.25 s."""

    def __init__(self, **settings: Any) -> None:
        self.now = 0.0
        # Not checked: bounds may be lower than any operator can set them.
        core = Scheduler(SchedulerConfig().model_copy(update=settings), 7, 0.0)
        self.loop = StepLoop(core, lambda: self.now, lambda when, turn: None)
        self.is_closed = False
        self.session: WorkerSession | None = None

    def dial(self, first: from_worker_pb2.AttachWorkerRequest) -> WorkerSession:
        self.session = WorkerSession(self.loop, first, lambda message: None, self._close)
        return self.session

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.25)):
            self.now += 0.25
            self.loop.tick()

    def _close(self) -> None:
        self.is_closed = True
        if self.session is not None:
            self.session.end()


def announce(num_parts: int, *numbers: int) -> from_worker_pb2.AttachWorkerRequest:
    """A hello with the slots `numbers`, and so many parts to come."""
    slots = [make_slot(number) for number in numbers]
    snapshot = from_worker_pb2.WorkerSnapshot(
        scheduler_epoch=1, last_step_id=5, slots=slots, num_parts=num_parts
    )
    return make_hello("w", snapshot=snapshot)


def make_part(*numbers: int, **fields: Any) -> from_worker_pb2.AttachWorkerRequest:
    slots = [make_slot(number) for number in numbers]
    for slot in slots:
        slot.MergeFrom(from_worker_pb2.SlotSnapshot(**fields))
    return from_worker_pb2.AttachWorkerRequest(snapshot_part=from_worker_pb2.SnapshotPart(slots=slots))


@pytest.mark.parametrize("first", [announce(U32_MAX), announce(8, 0), announce(0, *range(9))])
def test_more_parts_or_slots_than_the_worker_has_are_refused_at_once(
    first: from_worker_pb2.AttachWorkerRequest,
) -> None:
    with pytest.raises(InvalidRequestError, match="of 8 slots") as refusal:
        Peer().dial(first)
    assert refusal.value.field == SNAPSHOT_FIELD


def test_parts_that_leave_no_slot_for_the_others_are_refused_before_those_come() -> None:
    session = Peer().dial(announce(4, 0))
    assert session.take(make_part(1, 2, 3, 4))
    with pytest.raises(InvalidRequestError, match="of 8 slots"):
        session.take(make_part(5, 6))


def test_as_many_as_it_has_are_taken() -> None:
    peer = Peer()
    session = peer.dial(announce(NUM_SLOTS - 1, 0))
    for number in range(1, NUM_SLOTS):
        assert session.take(make_part(number))
    assert not peer.is_closed and not len(peer.loop.arrivals)


def test_a_hello_is_bounded_in_bytes() -> None:
    """A setting: the worker keeps what it tells of, and an operator can mend it (A4)."""
    session = Peer(max_hello_bytes=100_000).dial(announce(7))
    assert session.take(make_part(0, sealed_hashes=bytes(90_000)))
    with pytest.raises(InvalidRequestError, match="max_hello_bytes") as refusal:
        session.take(make_part(1, sealed_hashes=bytes(90_000)))
    assert refusal.value.field == "hello"


def test_a_hello_that_does_not_go_on_is_ended_and_its_name_is_free_again() -> None:
    """Within `worker_silence_ms` of the last part (H5); one that goes on has its time."""
    peer = Peer()
    session = peer.dial(announce(5))
    for number in range(4):
        peer.pass_time(1.25)
        assert session.take(make_part(number)) and not peer.is_closed
    peer.pass_time(1.25)
    assert not peer.is_closed
    peer.pass_time(0.75)
    assert peer.is_closed and not session.take(make_part(4))
    peer.dial(make_hello("w", worker_instance="w-2"))
    assert peer.loop.core.workers["w"].attached


@pytest.mark.parametrize("size", [0, 1000])
def test_a_worker_that_says_too_much_before_it_is_taken_in_is_to_say_hello_again(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small items take their place, too."""
    monkeypatch.setattr(worker_link, "MAX_EARLY_BYTES", 20_000)
    peer = Peer()
    session = peer.dial(announce(1))
    event = from_worker_pb2.WorkerEvent(leaving=from_worker_pb2.Leaving(reason="x" * size))
    told = from_worker_pb2.AttachWorkerRequest(events=[event])
    count = next(number for number in range(1000) if not session.take(told))
    assert peer.is_closed and 10 <= count <= 80
    assert session.refusal is None and not peer.loop.core.workers
    again = peer.dial(announce(1))
    assert again.take(make_event()) and again.take(make_part(0)) and peer.loop.core.workers["w"].attached


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("model.block_size", (0, 65_537)),
        ("model.max_model_len", (0, U32_MAX)),
        ("num_slots", (0, 65_537, U32_MAX)),
        ("num_blocks", (0, MAX_BLOCKS + 1, U32_MAX)),
        ("num_host_blocks", (MAX_BLOCKS + 1, U32_MAX)),
        ("max_num_batched_tokens", (0, U32_MAX)),
        ("max_draft_tokens", (256,)),
    ],
)
def test_an_offer_out_of_bounds_is_refused_by_name(field: str, values: tuple[int, ...]) -> None:
    for value in values:
        message, name = make_hello("w"), field.rpartition(".")[2]
        setattr(message.hello.model if "." in field else message.hello, name, value)
        with pytest.raises(InvalidRequestError, match=f"^{name} is {value}; ") as refusal:
            Peer().dial(message)
        assert refusal.value.field == f"hello.{field}"


@pytest.mark.parametrize(
    ("field", "value"), [("kind", 0), ("kind", 9), ("reach", 0), ("reach", U32_MAX), ("num_blocks", 9)]
)
def test_a_group_out_of_bounds_is_refused_by_name(field: str, value: int) -> None:
    """GR2, GR5: ten blocks of 16 are for a reach of 128 and a step."""
    message = make_hello("w", model=shared_pb2.ModelEntry(model="m", max_model_len=1024, block_size=16))
    group = message.hello.groups.add(kind=shared_pb2.BLOCK_GROUP_KIND_WINDOW, reach=128, num_blocks=10)
    Peer().dial(message)
    setattr(group, field, value)
    with pytest.raises(InvalidRequestError) as refusal:
        Peer().dial(message)
    assert refusal.value.field == f"hello.groups[0].{field}"


def test_chunks_are_in_whole_blocks_and_groups_are_few() -> None:
    message = make_hello("w", model=shared_pb2.ModelEntry(model="m", max_model_len=1024, block_size=16))
    message.hello.groups.add(kind=shared_pb2.BLOCK_GROUP_KIND_CHUNK, reach=40, num_blocks=10)
    with pytest.raises(InvalidRequestError, match="whole blocks of 16") as refusal:
        Peer().dial(message)
    assert refusal.value.field == "hello.groups[0].reach"
    message.hello.groups[0].reach = 32
    message.hello.groups.extend([message.hello.groups[0]] * 7)
    with pytest.raises(InvalidRequestError, match="7 are allowed") as refusal:
        Peer().dial(message)
    assert refusal.value.field == "hello.groups"


def test_slots_that_are_too_many_for_their_length_are_refused() -> None:
    model = shared_pb2.ModelEntry(model="m", max_model_len=1 << 30, block_size=16)
    with pytest.raises(InvalidRequestError, match="longest request") as refusal:
        Peer().dial(make_hello("w", model=model, num_slots=4096, num_blocks=1 << 22))
    assert refusal.value.field == "hello.num_slots"


@pytest.mark.parametrize("name", ["", "   ", "x" * 257, "é" * 129, "a\nb", "\0"])
@pytest.mark.parametrize("field", ["worker_id", "worker_instance", "address", "model"])
def test_a_name_that_is_none_is_refused_and_not_kept(field: str, name: str) -> None:
    peer, message = Peer(), make_hello("w")
    if field == "model":
        message.hello.model.model = name
    else:
        setattr(message.hello, field, name)
    with pytest.raises(InvalidRequestError) as refusal:
        peer.dial(message)
    assert refusal.value.field == ("hello.model.model" if field == "model" else f"hello.{field}")
    assert len(refusal.value.message) < 400 and not peer.loop.troubles.counts


async def test_frontends_and_relays_have_names_too() -> None:
    async with serve() as (loop, address), dial(address) as stub:
        frontend = stub.AttachFrontend()
        hello = from_frontend_pb2.FrontendHello(frontend_instance="x" * 257)
        await frontend.write(from_frontend_pb2.AttachFrontendRequest(hello=hello))
        with pytest.raises(grpc.aio.AioRpcError, match="frontend_instance"):
            await frontend.read()
        assert not loop.num_frontends
        with pytest.raises(grpc.aio.AioRpcError, match="relay_id"):
            await RelayStream(stub).attach(relay_id=" ")


def test_blocks_that_were_never_used_cost_a_host_tier_nothing() -> None:
    cache = HostCache(1 << 20)
    assert not cache._free
    assert [cache.store(bytes([number]), set()) for number in range(3)] == [0, 1, 2]
    cache.drop(b"\1")
    assert cache.store(b"x", set()) == 1 and cache.store(b"y", set()) == 3
    cache.check_integrity()


def test_a_new_pool_gives_its_blocks_in_order() -> None:
    pool = BlockPool(64)
    pool.check_integrity([])
    assert pool.take(3).tolist() == [0, 1, 2] and pool.num_free == 61


@pytest.mark.parametrize(
    ("states", "field"),
    [
        ({"boundary": 0, "num_checkpoints": 4}, "boundary"),
        ({"boundary": 24, "num_checkpoints": 4}, "boundary"),
        ({"boundary": 1 << 31, "num_checkpoints": 4}, "boundary"),
        ({"boundary": 64}, "num_checkpoints"),
        ({"boundary": 64, "num_checkpoints": 1 << 30}, "num_checkpoints"),
    ],
)
def test_checkpoints_that_no_worker_has_are_refused(states: dict[str, int], field: str) -> None:
    """CK1: blocks of 16."""
    message = make_hello("w", model=shared_pb2.ModelEntry(model="m", max_model_len=1024, block_size=16))
    message.hello.state_group.CopyFrom(from_worker_pb2.StateGroup(boundary=64, num_checkpoints=4))
    Peer().dial(message)
    message.hello.state_group.CopyFrom(from_worker_pb2.StateGroup(**states))
    with pytest.raises(InvalidRequestError) as refusal:
        Peer().dial(message)
    assert refusal.value.field == f"hello.state_group.{field}"
