"""The worker's link to schedulers that follow a script: whom it obeys, when it gives a link up, what it says last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np
import pytest

from signalbox.errors import DuplicateWorkerError, InvalidRequestError, SignalboxError, UnavailableError
from signalbox.links import rpc
from signalbox.links.heartbeat import HEARTBEAT_S
from signalbox.protocol.terms import MAX_TERM
from signalbox.v1 import (
    from_worker_pb2,
    generation_pb2,
    scheduler_pb2,
    scheduler_pb2_grpc,
    shared_pb2,
    to_worker_pb2,
)
from worker_svc.core.alone.terms import Terms
from worker_svc.core.batch import RunnerInfo
from worker_svc.core.step import FrontendOutput
from worker_svc.core.worker_core import WorkerCore
from worker_svc.guardian.step_mark import StepMark
from worker_svc.links.delta import PART_BYTES, split_snapshot
from worker_svc.links.redial import MOST_REFUSALS, Redial
from worker_svc.links.scheduler_link import SNAPSHOT_FIELD, SchedulerLink
from worker_svc.runner.sim.model import SimRunner, SimTiming, continuation
from worker_svc.steps.loop import StepLoop, StepResult

VOCAB = 200
INFO = RunnerInfo("sim", 200, 4, 400, VOCAB, eos_token_ids=())
PROMPT = [5, 6, 7, 8, 9]
SILENCE_S = 0.75


class Scheduler(scheduler_pb2_grpc.SchedulerServiceServicer):
    """Greets each worker with a term, beats, and sends what the test puts. None ends the stream."""

    def __init__(self, term: int, instance: str) -> None:
        self.term, self.instance = term, instance
        self.leads = self.beats = True
        self.refusal: SignalboxError | None = None
        self.hellos: asyncio.Queue[from_worker_pb2.WorkerHello] = asyncio.Queue()
        self.parts: list[from_worker_pb2.SnapshotPart] = []
        self.events: asyncio.Queue[from_worker_pb2.WorkerEvent] = asyncio.Queue()
        self.num_alive = 0
        self.reports: asyncio.Queue[from_worker_pb2.ModelRunnerOutput] = asyncio.Queue()
        self.messages: asyncio.Queue[to_worker_pb2.AttachWorkerResponse | None] = asyncio.Queue()

    async def FindLeader(self, request: Any, context: Any) -> scheduler_pb2.FindLeaderResponse:  # noqa: N802
        return scheduler_pb2.FindLeaderResponse(
            is_leader=self.leads, scheduler_epoch=self.term, scheduler_instance=self.instance
        )

    async def AttachWorker(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        first = await anext(aiter(requests))
        self.hellos.put_nowait(first.hello)
        if self.refusal is not None:
            await rpc.abort(context, self.refusal)
        reader = asyncio.create_task(self._read(requests))
        yield to_worker_pb2.AttachWorkerResponse(scheduler_epoch=self.term, scheduler_instance=self.instance)
        try:
            while not reader.done():
                try:
                    async with asyncio.timeout(HEARTBEAT_S):
                        message = await self.messages.get()
                except TimeoutError:
                    if self.beats:
                        yield to_worker_pb2.AttachWorkerResponse()
                    continue
                if message is None:
                    return
                yield message
        finally:
            reader.cancel()

    async def _read(self, requests: Any) -> None:
        async for message in requests:
            if message.HasField("snapshot_part"):
                self.parts.append(message.snapshot_part)
            for report in message.outputs:
                self.reports.put_nowait(report)
            for event in message.events:
                if event.WhichOneof("event") == "alive":
                    self.num_alive += 1
                else:
                    self.events.put_nowait(event)

    def start_request(self) -> None:
        """One request of 300 tokens with four blocks, and 150 that are lent."""
        payload = generation_pb2.RequestPayload(token_ids=np.array(PROMPT, "<i4").tobytes())
        request = to_worker_pb2.NewRequestData(
            slot=0,
            ref=shared_pb2.RequestRef(request_id="r0", attempt=1),
            frontend_instance="f",
            num_known_tokens=len(PROMPT),
            max_tokens=300,
            kind=generation_pb2.REQUEST_KIND_GENERATE,
            payload=payload.SerializeToString(),
        )
        starts = to_worker_pb2.ScheduledNewReqs(
            slots=np.array([0], "<u2").tobytes(),
            block_counts=np.array([4], "<u4").tobytes(),
            block_ids=np.arange(4, dtype="<u4").tobytes(),
            num_computed_tokens=np.array([0], "<u4").tobytes(),
            num_scheduled_tokens=np.array([len(PROMPT)], "<u4").tobytes(),
        )
        step = to_worker_pb2.SchedulerOutput(step_id=1, scheduler_epoch=self.term, scheduled_new_reqs=starts)
        loan = to_worker_pb2.BlockLoan(block_ids=np.arange(40, 190, dtype="<u4").tobytes())
        self.messages.put_nowait(
            to_worker_pb2.AttachWorkerResponse(new_requests=[request], steps=[step], loan=loan)
        )


class Worker:
    """A link, a step loop, and the tokens of the one request."""

    def __init__(self, addresses: str) -> None:
        self._loop = asyncio.get_running_loop()
        self.core = WorkerCore(INFO, num_slots=4)
        self.steps = StepLoop(
            self.core,
            SimRunner(INFO, SimTiming(base_ms=10.0)),
            lambda result: self._loop.call_soon_threadsafe(self._deliver, result),
            lambda reason: self._loop.call_soon_threadsafe(self.link.reconnect, reason),
        )
        self.link = SchedulerLink(
            addresses,
            self.steps,
            lambda: from_worker_pb2.WorkerHello(worker_id="w", worker_instance="i"),
            lambda instance: False,
            lambda: StepMark().turn,
            SILENCE_S,
        )
        self.tokens: list[int] = []
        self.gaps: list[float] = []
        self._last = 0.0

    def _deliver(self, result: StepResult) -> None:
        if not result.is_own:
            self.link.report(result.report)
        for output in result.outputs:
            self._take(output)

    def _take(self, output: FrontendOutput) -> None:
        now = self._loop.time()
        if self.tokens:
            self.gaps.append(now - self._last)
        self._last = now
        self.tokens += output.token_ids.tolist()

    async def grow(self, count: int) -> None:
        """So many tokens more."""
        wanted = len(self.tokens) + count
        async with asyncio.timeout(30):
            while len(self.tokens) < wanted:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(scheduler: Scheduler) -> AsyncIterator[str]:
    server = grpc.aio.server()
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(scheduler, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


@asynccontextmanager
async def working(*addresses: str) -> AsyncIterator[Worker]:
    worker = Worker(",".join(addresses))
    worker.steps.start()
    running = asyncio.create_task(worker.link.run())
    try:
        yield worker
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        worker.steps.stop(10)
        assert worker.steps.failure is None


def assert_right(worker: Worker) -> None:
    assert worker.tokens == continuation(PROMPT, len(worker.tokens), VOCAB)


async def test_a_worker_that_drains_waits_for_the_scheduler_s_word_and_no_longer() -> None:
    """HO14: what was placed before has come ahead of it."""
    scheduler = Scheduler(5, "s5")
    async with asyncio.timeout(60), serving(scheduler) as address, working(address) as worker:
        await scheduler.hellos.get()
        worker.link.tell_draining()
        assert (await scheduler.events.get()).HasField("draining")
        await worker.link.wait_draining(0.1)  # an older scheduler says nothing
        waiting = asyncio.create_task(worker.link.wait_draining(3600))
        scheduler.start_request()
        await worker.grow(1)
        assert not waiting.done()
        scheduler.messages.put_nowait(to_worker_pb2.AttachWorkerResponse(drains=True))
        await waiting


async def test_a_worker_goes_on_while_nobody_leads_and_tells_the_next_one_what_it_did() -> None:
    """A1, A3, A4, A5: it rests only when a scheduler leads."""
    scheduler = Scheduler(5, "s5")
    async with asyncio.timeout(60), serving(scheduler) as address, working(address) as worker:
        await scheduler.hellos.get()
        scheduler.start_request()
        await worker.grow(1)
        scheduler.leads = False
        scheduler.messages.put_nowait(None)
        await worker.grow(60)
        assert scheduler.hellos.empty() and worker.steps.is_alone
        scheduler.term, scheduler.instance, scheduler.leads = 6, "s6", True
        hello = await scheduler.hellos.get()
        snapshot = hello.snapshot
        assert (hello.scheduler_epoch, snapshot.scheduler_epoch, snapshot.scheduler_instance) == (5, 5, "s5")
        assert snapshot.last_scheduled_step_id == 1 and snapshot.last_step_id > 60
        (slot,) = snapshot.slots
        assert slot.num_output_tokens == len(worker.tokens)
        written = np.frombuffer(snapshot.blocks_written_alone, "<u4")
        assert written.tolist() == list(range(40, 40 + len(written)))
        assert not scheduler.reports.qsize() > 1, "own steps are reported to nobody"
        assert_right(worker)


async def test_a_silent_scheduler_is_left_for_another_of_the_list() -> None:
    """H4: its stream is open, and it says nothing; a worker without one to lead goes on alone."""
    first, second = Scheduler(5, "s5"), Scheduler(9, "s9")
    second.leads = False
    async with (
        asyncio.timeout(60),
        serving(first) as one,
        serving(second) as two,
        working(one, two) as worker,
    ):
        await first.hellos.get()
        first.start_request()
        await worker.grow(1)
        first.beats = first.leads = False
        await worker.grow(5)
        second.leads = True
        assert (await second.hellos.get()).snapshot.scheduler_instance == "s5"
        assert first.num_alive > 0
        assert_right(worker)


async def test_a_worker_whose_scheduler_hears_nothing_of_it_goes_on_alone_and_dials() -> None:
    """H4: it hears the scheduler itself."""
    scheduler = Scheduler(5, "s5")
    async with asyncio.timeout(60), serving(scheduler) as address, working(address) as worker:
        await scheduler.hellos.get()
        scheduler.start_request()
        await worker.grow(1)
        scheduler.leads = False
        scheduler.messages.put_nowait(to_worker_pb2.AttachWorkerResponse(hears_nothing=True))
        await worker.grow(20)
        assert worker.steps.is_alone
        scheduler.leads = True
        assert (await scheduler.hellos.get()).snapshot.scheduler_instance == "s5"
        assert_right(worker)


async def test_a_scheduler_that_says_what_is_no_message_is_left_and_dialled_again() -> None:
    """The worker lives, as its requests do."""
    hellos: asyncio.Queue[bytes] = asyncio.Queue()
    greeting = to_worker_pb2.AttachWorkerResponse(scheduler_epoch=5, scheduler_instance="s5")

    async def find(request: bytes, context: Any) -> bytes:
        return scheduler_pb2.FindLeaderResponse(is_leader=True).SerializeToString()

    async def attach(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        hellos.put_nowait(await anext(requests))
        yield greeting.SerializeToString()
        yield b"\xff\xff\xff"
        await asyncio.sleep(60)

    server = grpc.aio.server()
    handlers = {
        "FindLeader": grpc.unary_unary_rpc_method_handler(find),
        "AttachWorker": grpc.stream_stream_rpc_method_handler(attach),
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("signalbox.v1.SchedulerService", handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with asyncio.timeout(60), working(f"127.0.0.1:{port}"):
        for _ in range(3):
            await hellos.get()
    await server.stop(0)


async def test_a_deposed_scheduler_is_not_obeyed() -> None:
    """T1, T2: its term is below that of the one before it; the hello tells it so, and with a higher term it is."""
    scheduler = Scheduler(5, "s5")
    async with asyncio.timeout(60), serving(scheduler) as address, working(address) as worker:
        await scheduler.hellos.get()
        scheduler.start_request()
        await worker.grow(1)
        for term in (4, 5):
            scheduler.term, scheduler.instance = term, "old"
            scheduler.messages.put_nowait(None)
            assert (await scheduler.hellos.get()).scheduler_epoch == 5
            await worker.grow(5)
            assert not worker.link.is_attached
        scheduler.term = 6
        while not worker.link.is_attached:
            await asyncio.sleep(0.01)
        assert_right(worker)


async def test_a_snapshot_that_no_scheduler_takes_is_given_up() -> None:
    """A4: frontends get `lost`, and the worker serves again."""
    scheduler = Scheduler(5, "s5")
    async with asyncio.timeout(60), serving(scheduler) as address, working(address) as worker:
        await scheduler.hellos.get()
        scheduler.start_request()
        await worker.grow(1)
        scheduler.refusal = InvalidRequestError("slot 0: it cannot be", field=SNAPSHOT_FIELD)
        scheduler.messages.put_nowait(None)
        for _ in range(MOST_REFUSALS):
            assert (await scheduler.hellos.get()).HasField("snapshot")
        hello = await scheduler.hellos.get()
        assert not hello.HasField("snapshot") and hello.scheduler_epoch == 5
        scheduler.refusal = None
        while not worker.link.is_attached:
            await asyncio.sleep(0.01)


async def test_a_worker_that_is_refused_for_its_settings_keeps_what_it_holds_and_goes_on() -> None:
    """A4: an operator has started the scheduler with settings that contradict ours; he can mend that."""
    scheduler = Scheduler(5, "s5")
    async with asyncio.timeout(60), serving(scheduler) as address, working(address) as worker:
        await scheduler.hellos.get()
        scheduler.start_request()
        await worker.grow(1)
        scheduler.refusal = InvalidRequestError("max_num_seqs is 512, of 4 slots", field="hello")
        scheduler.messages.put_nowait(None)
        for _ in range(MOST_REFUSALS + 1):
            assert (await scheduler.hellos.get()).HasField("snapshot")
            await worker.grow(3)
        scheduler.refusal = None
        while not worker.link.is_attached:
            await asyncio.sleep(0.01)
        assert_right(worker)


async def test_the_last_word_comes_behind_the_reports_of_all_that_arrived() -> None:
    """E1: a worker that ends on purpose says so, and then ends its stream."""
    scheduler = Scheduler(5, "s5")
    async with asyncio.timeout(60), serving(scheduler) as address, working(address) as worker:
        await scheduler.hellos.get()
        scheduler.start_request()
        await scheduler.reports.get()
        steps = [to_worker_pb2.SchedulerOutput(step_id=number, scheduler_epoch=5) for number in (2, 3)]
        scheduler.messages.put_nowait(to_worker_pb2.AttachWorkerResponse(steps=steps))
        await scheduler.reports.get()
        await asyncio.to_thread(worker.steps.stop, 10)
        await worker.link.leave("it was told to stop")
        assert scheduler.reports.get_nowait().step_id == 3
        leaving = scheduler.events.get_nowait().leaving
        assert (leaving.reason, leaving.has_crashed) == ("it was told to stop", False)
        await asyncio.sleep(0.3)
        assert scheduler.hellos.empty(), "there is no other stream after that"


async def test_a_frontend_that_has_come_back_is_named_to_no_later_scheduler() -> None:
    """R8: that it was lost once is forgotten with its next stream, not with the next hello."""
    scheduler = Scheduler(5, "s5")
    async with asyncio.timeout(60), serving(scheduler) as address, working(address) as worker:
        await scheduler.hellos.get()
        scheduler.start_request()
        await worker.grow(1)
        worker.link.frontend_lost("f")
        assert (await scheduler.events.get()).frontend_lost.frontend_instance == "f"
        worker.link.frontend_found("f")
        scheduler.messages.put_nowait(None)
        await scheduler.hellos.get()
        while not worker.link.is_attached:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert scheduler.events.empty()


def test_a_snapshot_travels_in_parts_of_a_mebibyte() -> None:
    """W3."""
    slots = [from_worker_pb2.SlotSnapshot(slot=n, scheduler_meta=bytes(300_000)) for n in range(10)]
    snapshot = from_worker_pb2.WorkerSnapshot(slots=slots)
    parts = split_snapshot(snapshot)
    assert snapshot.num_parts == len(parts) == 3
    assert [slot.slot for part in (snapshot, *parts) for slot in part.slots] == list(range(10))
    assert all(part.ByteSize() <= PART_BYTES + 100 for part in (snapshot, *parts))
    assert split_snapshot(from_worker_pb2.WorkerSnapshot(slots=slots[:2])) == []


@pytest.mark.parametrize(
    ("error", "first_s", "longest_s"),
    [
        (None, 0.1, 2.0),
        (UnavailableError("gone"), 0.1, 2.0),
        (InvalidRequestError("wrong", field="hello"), 0.25, 30.0),
        (DuplicateWorkerError("taken"), 5.0, 5.0),
    ],
)
def test_attempts_come_later_and_later_and_not_in_step(
    error: SignalboxError | None, first_s: float, longest_s: float
) -> None:
    """H5, A4: nobody dials in a tight loop."""
    redials = [Redial() for _ in range(20)]
    first = [redial.fail(error) for redial in redials]
    assert len(set(first)) == len(first) and max(first) <= first_s
    for _ in range(20):
        last = [redial.fail(error) for redial in redials]
    assert longest_s / 5 <= min(last) and max(last) <= longest_s
    redials[0].succeed()
    assert redials[0].fail(error) <= first_s


def test_terms_never_fall() -> None:
    """T1."""
    terms = Terms()
    assert terms.refusal_of(3, "a") is None
    terms.obey(3, "a")
    terms.rise(7)
    assert terms.refusal_of(7, "a") is None
    assert terms.refusal_of(7, "b") and terms.refusal_of(6, "a") and terms.refusal_of(6, "b")
    assert terms.refusal_of(8, "b") is None
    terms.obey(8, "b")
    assert terms.highest == 8
    assert terms.refusal_of(MAX_TERM, "c") is None
    assert terms.refusal_of(MAX_TERM + 1, "c"), "T4: nobody could lead it afterwards"
