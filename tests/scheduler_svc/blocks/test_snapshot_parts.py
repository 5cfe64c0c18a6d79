"""Hellos that come in parts (W3, J5)."""

from __future__ import annotations

import grpc
import numpy as np
import pytest

from scheduler_svc.core.recovery import snapshot as recovery
from scheduler_svc.links.worker_link import SNAPSHOT_FIELD
from signalbox.v1 import from_frontend_pb2, from_worker_pb2, shared_pb2, to_worker_pb2
from tests.scheduler_svc.attached import RelayStream, dial, make_hello, serve


@pytest.fixture(autouse=True, params=[1, 128])
def _piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many slots are read or adopted in one go: piece by piece it is the same."""
    monkeypatch.setattr(recovery, "PIECE_SLOTS", request.param)


def make_slot(number: int) -> from_worker_pb2.SlotSnapshot:
    """A decode row of nine tokens in three blocks."""
    meta = from_frontend_pb2.RequestMeta(model="m", num_prompt_tokens=8, max_tokens=8)
    return from_worker_pb2.SlotSnapshot(
        slot=number,
        ref=shared_pb2.RequestRef(request_id=f"r{number}", attempt=1),
        frontend_instance="f",
        status=from_worker_pb2.SLOT_STATUS_DECODE,
        block_ids=np.arange(3 * number, 3 * number + 3, dtype="<u4").tobytes(),
        num_computed_tokens=8,
        num_output_tokens=1,
        prefill_target=8,
        scheduler_meta=meta.SerializeToString(),
    )


def make_parts(*numbers: int) -> list[from_worker_pb2.AttachWorkerRequest]:
    """A hello that holds the first slot, and a part for each of the others."""
    first, *others = numbers
    snapshot = from_worker_pb2.WorkerSnapshot(
        scheduler_epoch=1, last_step_id=5, slots=[make_slot(first)], num_parts=len(others)
    )
    parts = [from_worker_pb2.SnapshotPart(slots=[make_slot(number)]) for number in others]
    messages = [from_worker_pb2.AttachWorkerRequest(snapshot_part=part) for part in parts]
    return [make_hello("w", snapshot=snapshot), *messages]


@pytest.mark.parametrize("relayed", [False, True])
async def test_a_hello_is_taken_when_its_last_part_is_there(relayed: bool) -> None:
    """J5."""
    async with serve() as (loop, address), dial(address) as stub:
        relay, worker = await RelayStream(stub).attach(), stub.AttachWorker()
        messages = make_parts(0, 1, 2)
        messages[1].events.add().draining.SetInParent()
        for message in messages:
            assert "w" not in loop.core.workers
            if relayed:
                await relay.send((1, message))
            else:
                await worker.write(message)
        greeting = await (relay.next_of(1) if relayed else worker.read())
        assert isinstance(greeting, to_worker_pb2.AttachWorkerResponse) and greeting.scheduler_epoch == 7
        held = loop.core.workers["w"]
        assert sorted(request.key.request_id for request in held.requests()) == ["r0", "r1", "r2"]
        assert held.draining, "what came between the parts is not forgotten"
        loop.core.check_integrity()


@pytest.mark.parametrize(
    ("numbers", "reason"), [((0, 1, 1), "named twice"), ((0, 99), "slot 99"), ((0, 1, 2), "announced")]
)
async def test_a_part_that_contradicts_the_others_refuses_the_hello(
    numbers: tuple[int, ...], reason: str
) -> None:
    """Whole or not at all: nothing of the parts before it is taken."""
    async with serve() as (loop, address), dial(address) as stub:
        worker, messages = stub.AttachWorker(), make_parts(*numbers)
        if reason == "announced":  # fewer were announced than come
            messages[0].hello.snapshot.num_parts = 0
            messages[0].hello.ClearField("snapshot")
            messages[0].snapshot_part.SetInParent()
        for message in messages[: None if reason != "announced" else 1]:
            await worker.write(message)
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await worker.read()
        assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert dict(refusal.value.trailing_metadata() or ())["signalbox-field"] == SNAPSHOT_FIELD
        assert reason in (refusal.value.details() or "")
        assert not loop.core.workers and not loop.core.requests


async def test_a_worker_whose_link_ends_between_the_parts_was_never_there() -> None:
    async with serve() as (loop, address), dial(address) as stub:
        worker, messages = stub.AttachWorker(), make_parts(0, 1, 2)
        await worker.write(messages[0])
        worker.cancel()
        again = stub.AttachWorker()
        for message in messages:
            await again.write(message)
        await again.read()
        assert len(loop.core.requests) == 3
