"""Two links under one name: the same process again, or another one (H5)."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from signalbox.v1 import scheduler_pb2
from tests.scheduler_svc.attached import RelayStream, attach_frontend, dial, make_hello, serve, submit


async def test_a_second_worker_with_the_id_of_a_live_one_is_refused_and_costs_nobody_anything() -> None:
    """H5: whoever starts a worker by hand without --worker-id."""
    async with serve() as (loop, address), dial(address) as stub:
        first, frontend = stub.AttachWorker(), await attach_frontend(stub)
        await first.write(make_hello("w"))
        await first.read()
        await submit(frontend, "a")
        assert (await first.read()).steps
        second = stub.AttachWorker()
        await second.write(make_hello("w", worker_instance="another"))
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await second.read()
        assert refusal.value.code() is grpc.StatusCode.ALREADY_EXISTS
        assert "'w'" in (refusal.value.details() or "")
        assert loop.core.workers["w"].info.instance == "w-1" and len(loop.core.requests) == 1


async def test_a_worker_that_calls_itself_by_anothers_instance_is_refused() -> None:
    """H5: frontends would take one for the other."""
    async with serve() as (loop, address), dial(address) as stub:
        first = stub.AttachWorker()
        await first.write(make_hello("w"))
        await first.read()
        second = stub.AttachWorker()
        await second.write(make_hello("another", worker_instance="w-1"))
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await second.read()
        assert refusal.value.code() is grpc.StatusCode.ALREADY_EXISTS
        assert ("signalbox-field", "worker_instance") in tuple(refusal.value.trailing_metadata() or ())
        assert set(loop.core.workers) == {"w"}


async def test_a_relayed_worker_with_the_id_of_a_live_one_is_refused() -> None:
    """H5: through a relay, where its link alone ends."""
    async with serve() as (loop, address), dial(address) as stub:
        relay = await RelayStream(stub).attach()
        await relay.send((1, make_hello("w")), (2, make_hello("w", worker_instance="another")))
        closed = await relay.next_of(2)
        assert isinstance(closed, scheduler_pb2.LinkClosed)
        assert closed.error.code == "DuplicateWorkerError"
        assert loop.core.workers["w"].info.instance == "w-1" and loop.core.workers["w"].attached


async def test_another_process_takes_the_place_of_one_whose_link_ended() -> None:
    async with serve() as (loop, address), dial(address) as stub:
        first = stub.AttachWorker()
        await first.write(make_hello("w"))
        await first.read()
        first.cancel()
        while loop.core.workers["w"].attached:
            await asyncio.sleep(0.01)
        second = stub.AttachWorker()
        await second.write(make_hello("w", worker_instance="another"))
        await second.read()
        assert loop.core.workers["w"].info.instance == "another"


@pytest.mark.parametrize("relayed", [False, True])
async def test_a_new_link_of_the_same_worker_ends_the_old_one(relayed: bool) -> None:
    """H5: at once, not with its next message, which a half-open link never brings."""
    async with serve() as (loop, address), dial(address) as stub:
        relay = await RelayStream(stub).attach()
        first = stub.AttachWorker()
        if relayed:
            await relay.send((1, make_hello("w")))
            await relay.next_of(1)
        else:
            await first.write(make_hello("w"))
            await first.read()
        second = stub.AttachWorker()
        await second.write(make_hello("w"))
        await second.read()
        async with asyncio.timeout(10):
            if relayed:
                assert isinstance(await relay.next_of(1), scheduler_pb2.LinkClosed)
            else:
                assert await first.read() == grpc.aio.EOF
        assert loop.core.workers["w"].attached


async def test_a_new_link_of_the_same_frontend_ends_the_old_one() -> None:
    """H5: and what is new goes to the new one."""
    async with serve() as (loop, address), dial(address) as stub:
        old, new = await attach_frontend(stub), await attach_frontend(stub)
        async with asyncio.timeout(10):
            assert await old.read() == grpc.aio.EOF
        assert loop.num_frontends == 1
        worker = stub.AttachWorker()
        await worker.write(make_hello("w"))
        await submit(new, "a")
        async with asyncio.timeout(10):
            while not (message := await new.read()).placed:
                pass
        assert message.placed[0].ref.request_id == "a"
