"""The worker's stream to the scheduler: hello with all that it holds, then steps down and reports up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Any

import grpc

from signalbox.errors import DuplicateWorkerError, InvalidRequestError, SignalboxError, UnavailableError
from signalbox.links import rpc
from signalbox.links.heartbeat import HEARTBEAT_S, Silence
from signalbox.links.leader import Leader, LeaderSearch
from signalbox.links.outbox import Outbox, OutboxFullError
from signalbox.links.readable import EOF, read_message
from signalbox.links.rpc_errors import error_of
from signalbox.links.tls.roles import Role
from signalbox.links.versions import check_versions
from signalbox.v1 import from_worker_pb2, scheduler_pb2_grpc, to_worker_pb2
from worker_svc.core.alone.terms import Terms
from worker_svc.core.step import Failure
from worker_svc.grammar.coordinator import GrammarResult
from worker_svc.guardian.step_age import StepAge
from worker_svc.guardian.step_mark import Turn
from worker_svc.links import delta
from worker_svc.links.redial import TRUSTED_S, Redial
from worker_svc.links.waiting_reports import may_wait
from worker_svc.steps.inbox import StepInbox

logger = logging.getLogger(__name__)

MAX_OUTBOX = 10_000
NO_PATH = "look whether it runs, and for what is between the two hosts"
"""What to do where no scheduler answers."""
SNAPSHOT_FIELD = "hello.snapshot"
"""Named by the refusal of a hello whose snapshot nobody will ever take."""
LEAVE_S = 0.3
"""How long the scheduler has to read our last word."""
Stream = grpc.aio.StreamStreamCall[Any, Any]


class SchedulerLink:
    """Looks for the scheduler that leads and says hello to it, for as long as it runs. A broken or silent stream is
    closed for good and followed by a new hello; there is no other way back. Meanwhile the worker goes on alone."""

    def __init__(
        self,
        addresses: str,
        steps: StepInbox,
        make_hello: Callable[[], from_worker_pb2.WorkerHello],
        reads_outputs: Callable[[str], bool],
        turn: Callable[[], Turn],
        silence_s: float,
        upward: Role = Role.SCHEDULER,
    ) -> None:
        """addresses: `host:port,host:port`, of what is `upward`. reads_outputs: the frontend with this instance has a
        stream here. turn: the oldest step that has not ended. silence_s: a scheduler that says nothing for so long is
        gone."""
        self._search = LeaderSearch(addresses, upward)
        self._steps, self._turn, self._silence_s = steps, turn, silence_s
        self._age = StepAge()
        self._make_hello, self._reads_outputs = make_hello, reads_outputs
        self._terms, self._redial = Terms(), Redial()
        self._num_hellos = 0
        self._lost: dict[str, bool] = {}
        """Frontends whose loss the scheduler may not know, and whether it was attached and told."""
        self._outbox: Outbox[from_worker_pb2.AttachWorkerRequest] | None = None
        self._reports: list[from_worker_pb2.ModelRunnerOutput] = []
        """Reports that wait for the next."""
        self._stream: Stream | None = None
        self._silence = Silence(silence_s, 0.0)
        self._has_spoken = False
        """Something was said since the last heartbeat."""
        self._is_draining = self._is_leaving = False
        self._drain_is_known = asyncio.Event()
        """The scheduler has said that it places nothing new here."""
        self._has_ended = asyncio.Event()
        """Set while there is no stream."""
        self._has_ended.set()
        self._said = ""
        """What was logged last of a search without success."""
        self.is_attached = False
        self.on_attached: Callable[[], None] = lambda: None
        """Called when a scheduler has taken a hello."""
        self.on_obeyed: Callable[[int, str], None] = lambda term, instance: None
        """Called with term and instance of whom the worker obeys, and with 0 when it does so no more."""

    # -- what the worker has to say --

    def report(self, report: from_worker_pb2.ModelRunnerOutput) -> None:
        """Sends a step's report, perhaps together with those of steps that have arrived behind it. Without a stream it
        is dropped: the next hello says more."""
        self._reports.append(report)
        if not may_wait(report, self._steps.newest_step_id):
            self._put(from_worker_pb2.AttachWorkerRequest())

    def frontend_lost(self, instance: str) -> None:
        """Tells that nobody reads the outputs for a frontend; without a stream, after the next hello."""
        self._lost[instance] = self.is_attached
        self._tell_lost(instance)

    def frontend_found(self, instance: str) -> None:
        """The frontend has a stream. What it lost is forgotten if the scheduler was told."""
        if self._lost.get(instance):
            del self._lost[instance]

    def _tell_lost(self, instance: str) -> None:
        lost = from_worker_pb2.FrontendLost(frontend_instance=instance)
        self._tell(from_worker_pb2.WorkerEvent(frontend_lost=lost))

    def tell_grammar(self, result: GrammarResult) -> None:
        """Tells what came of a grammar. Without a stream it is dropped: the next hello says more, and `announce`."""
        self._tell(delta.build_grammar_event(result))

    def tell_fence(self, fence: int, failure: Failure | None) -> None:
        """Tells that copies beside the steps have ended. Without a stream it is dropped: no fence outlives one."""
        self._tell(delta.build_fence_ended(fence, failure))

    def tell_event(self, event: from_worker_pb2.WorkerEvent) -> None:
        """Tells what came of a hand-off, or something of the disk tier. Without a stream it is dropped: the next hello
        says more, or is followed by more."""
        self._tell(event)

    def tell_draining(self) -> None:
        """Asks for nothing new, now and with each hello to come."""
        self._is_draining = True
        self._tell(from_worker_pb2.WorkerEvent(draining=from_worker_pb2.Draining()))

    async def wait_draining(self, timeout_s: float) -> None:
        """Waits until the scheduler knows that we drain, and all that it placed here before has come; `timeout_s` at
        most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._drain_is_known.wait()

    async def leave(self, reason: str, *, has_crashed: bool = False) -> None:
        """Says as the last word that the process ends, and waits for LEAVE_S at most until the scheduler has read it.
        There is no other stream after this one."""
        leaving = from_worker_pb2.Leaving(reason=reason, has_crashed=has_crashed)
        self._tell(from_worker_pb2.WorkerEvent(leaving=leaving))
        self._is_leaving = True
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._has_ended.wait()
        except TimeoutError:
            logger.warning("the scheduler has not read that we leave")

    def reconnect(self, reason: str) -> None:
        """Ends the stream, so that the scheduler is told where we stand."""
        logger.warning("leaving the scheduler's stream: %s", reason)
        self._redial.distrust()
        if self._stream is not None:
            self._stream.cancel()

    def _tell(self, event: from_worker_pb2.WorkerEvent) -> None:
        self._put(from_worker_pb2.AttachWorkerRequest(events=[event]))

    def _put(self, message: from_worker_pb2.AttachWorkerRequest) -> None:
        reports, self._reports = self._reports, []
        if self._outbox is None or self._is_leaving:
            return
        message.outputs.extend(reports)
        try:
            self._outbox.put(message)
        except OutboxFullError as error:
            self.reconnect(str(error))
        self._has_spoken = True

    # -- streams, one after another --

    async def run(self) -> None:
        """Dials the scheduler, and again whenever a link ends, until it is cancelled or has left."""
        try:
            while not self._is_leaving:
                leader = await self._find()
                error = await self._attach(leader)
                if error is not None:
                    logger.warning("no link to the scheduler at %s: %s", leader.address, error.message)
                if not self._is_leaving:
                    await asyncio.sleep(self._redial.fail(error))
        finally:
            await self._search.close()

    async def _find(self) -> Leader:
        while True:
            try:
                leader = await self._search.find()
            except UnavailableError as error:
                if error.message != self._said:
                    logger.warning("%s", error.message)
                    self._said = error.message
                continue
            self._said = ""
            return leader

    async def _attach(self, leader: Leader) -> SignalboxError | None:
        """One stream, from hello to its end. Returns what ended it, if anything is known of it."""
        hello = self._make_hello()
        self._num_hellos += 1
        hello.hello_number = self._num_hellos
        snapshot = await asyncio.wrap_future(self._steps.snapshot())
        hello.scheduler_epoch, hello.scheduler_instance = self._terms.highest, self._terms.instance
        parts: list[from_worker_pb2.SnapshotPart] = []
        if snapshot is not None:
            hello.scheduler_epoch = max(hello.scheduler_epoch, snapshot.scheduler_epoch)
            parts = delta.split_snapshot(snapshot)
            hello.snapshot.CopyFrom(snapshot)
        try:
            await self._converse(leader, hello, parts)
        except grpc.aio.AioRpcError as error:
            return self._judge(error_of(error, leader.address, NO_PATH), has_snapshot=snapshot is not None)
        except ConnectionError as error:
            self._redial.distrust()
            return UnavailableError(str(error))
        finally:
            self.is_attached, self._outbox, self._stream = False, None, None
            self._reports = []  # the next hello says more
            self.on_obeyed(0, "")
            self._has_ended.set()
            self._steps.link_closed()
        return None

    async def _converse(
        self, leader: Leader, hello: from_worker_pb2.WorkerHello, parts: list[from_worker_pb2.SnapshotPart]
    ) -> None:
        stream = self._stream = scheduler_pb2_grpc.SchedulerServiceStub(leader.channel).AttachWorker()
        outbox = self._outbox = Outbox[from_worker_pb2.AttachWorkerRequest](MAX_OUTBOX)
        self._has_ended.clear()
        since = _now()
        self._silence = Silence(self._silence_s, since)
        first = [from_worker_pb2.AttachWorkerRequest(hello=hello)]
        first += [from_worker_pb2.AttachWorkerRequest(snapshot_part=part) for part in parts]
        lost = self._still_lost(slot.frontend_instance for message in first for slot in _slots_of(message))
        self._lost = {instance: self._lost[instance] for instance in lost}
        for instance in lost:
            self._tell_lost(instance)
        if self._is_draining:
            self.tell_draining()
        self._steps.announce()
        try:
            await rpc.run_until_first_ends(
                self._read(stream, leader, lost), self._write(outbox, stream, first), self._beat(leader)
            )
        finally:
            stream.cancel()
            if _now() - since > TRUSTED_S:
                self._redial.endure()

    def _judge(self, error: SignalboxError, *, has_snapshot: bool) -> SignalboxError:
        """What ended a stream. A snapshot that is refused again and again is given up, with all that it tells of; where
        settings contradict each other an operator can mend them, and what the worker holds goes on meanwhile."""
        if isinstance(error, DuplicateWorkerError):
            logger.error("another process lives under our worker id: this one serves nothing meanwhile")
        elif isinstance(error, InvalidRequestError) and error.field != SNAPSHOT_FIELD:
            logger.error("the scheduler refuses this worker, which tries again: %s", error.message)
        elif isinstance(error, InvalidRequestError) and self._redial.has_tried_enough and has_snapshot:
            logger.error(
                "the scheduler does not take what this worker holds; it is given up: %s", error.message
            )
            self._steps.give_up()
        return error

    def _still_lost(self, holders: Iterable[str]) -> list[str]:
        """Frontends to be named with a hello: they have requests here, and did not come back after it was told."""
        instances = set(holders)
        return [
            instance
            for instance, told in self._lost.items()
            if instance in instances and not (told and self._reads_outputs(instance))
        ]

    async def _read(self, stream: Stream, leader: Leader, lost: list[str]) -> None:
        """lost: frontends that were named with the hello."""
        while (message := await read_message(stream)) is not EOF:
            self._silence.heard(_now())
            if message.hears_nothing:
                raise ConnectionError("the scheduler hears nothing of this worker: the path is dead one way")
            if not self.is_attached:
                if not message.ByteSize():
                    continue
                if not self._take_greeting(message, leader, lost):
                    return
            try:
                if message.steps:
                    self._terms.rise(message.steps[-1].scheduler_epoch)
                self._steps.put(message)
                if message.drains:
                    self._drain_is_known.set()
            except ValueError as error:
                raise ConnectionError(f"what it sent does not fit: {error}") from None

    def _take_greeting(
        self, message: to_worker_pb2.AttachWorkerResponse, leader: Leader, lost: list[str]
    ) -> bool:
        """The scheduler has taken the hello. False: it is not ours to obey; the next hello tells it so."""
        try:
            check_versions(message.protocol, f"the scheduler at {leader.address}", "this worker")
        except InvalidRequestError as error:
            logger.error("%s", error.message)
            self._redial.distrust()
            return False
        named = message.steps[0].scheduler_epoch if message.steps else 0
        term, instance = message.scheduler_epoch or named, message.scheduler_instance
        refusal = self._terms.refusal_of(term, instance)
        if refusal is not None:
            logger.warning("the scheduler at %s is not obeyed: %s", leader.address, refusal)
            return False
        logger.info("attached to the scheduler at %s, term %d", leader.address, term)
        self._terms.obey(term, instance)
        self._redial.succeed()
        self.is_attached = True
        for frontend in lost:  # they travelled with the hello
            self._lost.pop(frontend, None)
        self._steps.greeted(term, instance)
        self.on_obeyed(term, instance)
        self.on_attached()
        return True

    async def _beat(self, leader: Leader) -> None:
        """Says that we live; ends when the scheduler has been silent for too long."""
        while not self._silence.is_silent(_now()):
            await asyncio.sleep(HEARTBEAT_S)
            self._say_alive()
        seconds = self._silence.lasts_s(_now())
        logger.warning("the scheduler at %s has been silent for %.1f s", leader.address, seconds)

    def _say_alive(self) -> None:
        turn = self._turn()
        age_s = self._age.look(turn.step_id, _now())
        if not self._has_spoken or age_s >= HEARTBEAT_S:
            alive = from_worker_pb2.Alive(
                oldest_step_ms=int(age_s * 1000), step_id=turn.step_id, compiles=turn.compiles
            )
            self._tell(from_worker_pb2.WorkerEvent(alive=alive))
        self._has_spoken = False

    async def _write(
        self,
        outbox: Outbox[from_worker_pb2.AttachWorkerRequest],
        stream: Stream,
        first: list[from_worker_pb2.AttachWorkerRequest],
    ) -> None:
        """The one writer of the stream: the hello, then what waits travels in one message."""
        for message in first:
            await stream.write(message)
            self._silence.heard(_now())  # a large snapshot takes its time
        await write_all(outbox, stream, lambda: self._is_leaving)


async def write_all(
    outbox: Outbox[from_worker_pb2.AttachWorkerRequest], stream: Stream, is_leaving: Callable[[], bool]
) -> None:
    """Writes what waits, in one message each time. `is_leaving`: the last word is in the outbox or was taken from it;
    behind it the stream is ours no more."""
    while True:
        message, *others = await outbox.take()
        for other in others:
            message.MergeFrom(other)
        await stream.write(message)
        if is_leaving() and not len(outbox):  # it may have come while we wrote
            await stream.done_writing()
            await asyncio.Event().wait()  # the scheduler ends the stream


def _slots_of(message: from_worker_pb2.AttachWorkerRequest) -> Iterable[from_worker_pb2.SlotSnapshot]:
    return message.hello.snapshot.slots if message.HasField("hello") else message.snapshot_part.slots


def _now() -> float:
    return asyncio.get_running_loop().time()
