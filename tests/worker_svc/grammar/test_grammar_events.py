"""A worker process tells its scheduler which grammars are ready, and a new stream once more."""

from __future__ import annotations

import asyncio

import numpy as np

from signalbox.cli.ring.ring import DEMO_MODEL
from signalbox.links import rpc
from signalbox.v1 import (
    from_frontend_pb2,
    from_worker_pb2,
    generation_pb2,
    shared_pb2,
    to_worker_pb2,
    worker_pb2,
    worker_pb2_grpc,
)
from tests.worker_svc.test_worker_process import worker_process

PROMPT = [5, 6, 7, 8]
PREPARING = from_worker_pb2.SLOT_STATUS_PREPARING
ENDED = from_worker_pb2.SLOT_STATUS_ENDED
WORKER = (f"--model={DEMO_MODEL}", "--num-blocks=64", "--threads=1")


def new_request(slot: int, regex: str | None) -> to_worker_pb2.NewRequestData:
    form = None if regex is None else generation_pb2.StructuredOutput(regex=regex)
    payload = generation_pb2.RequestPayload(
        token_ids=np.array(PROMPT, "<i4").tobytes(),
        sampling=generation_pb2.SamplingParams(structured_output=form),
    )
    return to_worker_pb2.NewRequestData(
        slot=slot,
        ref=shared_pb2.RequestRef(request_id=f"r{slot}", attempt=slot + 1),
        frontend_instance="f",
        scheduler_meta=from_frontend_pb2.RequestMeta(has_grammar=regex is not None).SerializeToString(),
        payload=payload.SerializeToString(),
        num_known_tokens=len(PROMPT),
        max_tokens=8,
    )


def first_step(slot: int) -> to_worker_pb2.SchedulerOutput:
    return to_worker_pb2.SchedulerOutput(
        step_id=1,
        scheduler_epoch=1,
        scheduled_new_reqs=to_worker_pb2.ScheduledNewReqs(
            slots=np.array([slot], "<u2").tobytes(),
            block_counts=np.array([2], "<u4").tobytes(),
            block_ids=np.array([0, 1], "<u4").tobytes(),
            num_computed_tokens=np.array([0], "<u4").tobytes(),
            num_scheduled_tokens=np.array([len(PROMPT)], "<u4").tobytes(),
        ),
    )


async def first_end(address: str) -> worker_pb2.OutputFinished:
    """The first end of a request that the frontend `f` hears of."""
    async with rpc.channel(address) as channel:
        stream = worker_pb2_grpc.WorkerServiceStub(channel).StreamOutputs()
        await stream.write(worker_pb2.StreamOutputsRequest(frontend_instance="f"))
        async for message in stream:
            for batch in message.batches:
                if batch.finished:
                    stream.cancel()
                    return batch.finished[0]
    raise AssertionError("the stream ended")


async def test_events_of_grammars_and_again_after_a_new_hello() -> None:
    """J7."""
    async with asyncio.timeout(90), worker_process(*WORKER) as (scheduler, address):
        assert not (await scheduler.hellos.get()).HasField("snapshot")
        requests = [new_request(0, None), new_request(1, "[a-z]+"), new_request(2, "(")]
        scheduler.messages.put_nowait(
            to_worker_pb2.AttachWorkerResponse(new_requests=requests, steps=[first_step(0)])
        )
        events = {
            event.WhichOneof("event"): event for event in [await scheduler.events.get() for _ in range(2)]
        }
        ready, failed = events["grammar_ready"].grammar_ready, events["grammar_failed"].grammar_failed
        assert (ready.slot, ready.ref.request_id, ready.ref.attempt) == (1, "r1", 2)
        assert (failed.slot, failed.ref.attempt, failed.error.code) == (2, 3, "InvalidRequestError")
        assert failed.error.field == "structured_output" and "unclosed group" in failed.error.message
        end = await first_end(address)
        assert (end.attempt, end.reason, end.error) == (3, generation_pb2.FINISH_REASON_ERROR, failed.error)
        await scheduler.reports.get()

        scheduler.messages.put_nowait(None)
        snapshot = (await scheduler.hellos.get()).snapshot
        statuses = {slot.slot: slot.status for slot in snapshot.slots}
        assert (statuses[1], statuses[2]) == (PREPARING, ENDED)
        again = (await scheduler.events.get()).grammar_ready
        assert (again.slot, again.ref.attempt) == (1, 2)
        scheduler.messages.put_nowait(None)
