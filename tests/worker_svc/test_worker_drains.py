"""A worker that is told to stop, with `--drain-s`: its requests end first."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import grpc

from signalbox.links import rpc
from signalbox.v1 import to_worker_pb2, worker_pb2, worker_pb2_grpc
from tests.ports import free_ports
from tests.worker_svc.test_worker_ends import exit_status
from tests.worker_svc.test_worker_process import serve_scheduler, start_request, start_worker


async def read_all(address: str) -> list[int]:
    """Attempts that end, read and acknowledged until the worker is gone."""
    ended = []
    async with rpc.channel(address) as channel:
        stream = worker_pb2_grpc.WorkerServiceStub(channel).StreamOutputs()
        await stream.write(worker_pb2.StreamOutputsRequest(frontend_instance="f"))
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            async for message in stream:
                for batch in message.batches:
                    ended += [finished.attempt for finished in batch.finished]
                    await stream.write(worker_pb2.StreamOutputsRequest(acknowledged=batch.sequence))
    return ended


async def test_a_worker_tells_the_scheduler_and_ends_its_requests_before_it_stops() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    async with asyncio.timeout(100), serve_scheduler() as (scheduler, port):
        process = start_worker(port, address, "--runner=sim", "--drain-s=90")
        try:
            await start_request(scheduler)
            process.terminate()
            assert (await scheduler.events.get()).WhichOneof("event") == "draining"
            scheduler.messages.put_nowait(None)
            await scheduler.hellos.get()
            assert (await scheduler.events.get()).WhichOneof("event") == "draining", "it may have been lost"
            reading = asyncio.create_task(read_all(address))
            number = scheduler.last_step_id
            while number < 4:  # some have run while there was no scheduler
                number += 1
                step = to_worker_pb2.SchedulerOutput(step_id=number, scheduler_epoch=1)
                scheduler.messages.put_nowait(to_worker_pb2.AttachWorkerResponse(steps=[step]))
                await scheduler.reports.get()
            assert process.poll() is None, "the scheduler has not acknowledged the end"
            step = to_worker_pb2.SchedulerOutput(
                step_id=number + 1, scheduler_epoch=1, finished_slots=b"\0\0"
            )
            scheduler.messages.put_nowait(to_worker_pb2.AttachWorkerResponse(steps=[step]))
            assert (await scheduler.events.get()).leaving.reason, "E1: its last word"
            assert await exit_status(process) == 0
            assert await reading == [1]
        finally:
            process.kill()


async def test_a_worker_stops_when_its_time_to_drain_is_over() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    async with asyncio.timeout(100), serve_scheduler() as (scheduler, port):
        process = start_worker(port, address, "--runner=sim", "--drain-s=0.5")
        try:
            await start_request(scheduler)
            process.terminate()
            assert await exit_status(process) == 0
        finally:
            process.kill()
