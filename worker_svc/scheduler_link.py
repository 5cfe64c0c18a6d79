"""The worker's stream to the scheduler: hello with all that it holds, then steps down and reports up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import grpc

from signalbox import rpc
from signalbox.outbox import Outbox, OutboxFullError
from signalbox.v1 import scheduler_pb2, scheduler_pb2_grpc
from worker_svc import delta
from worker_svc.core.step import Failure
from worker_svc.grammar.desk import Verdict
from worker_svc.step_loop import StepLoop

logger = logging.getLogger(__name__)

MAX_OUTBOX = 10_000
FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 2.0
ALIVE_S = 1.0
Stream = grpc.aio.StreamStreamCall[Any, Any]


class SchedulerLink:
    """Dials the scheduler for as long as it runs. A broken stream is followed by a new hello; there is no other way
    back."""

    def __init__(
        self,
        address: str,
        steps: StepLoop,
        make_hello: Callable[[], scheduler_pb2.WorkerHello],
        reads_outputs: Callable[[str], bool],
    ) -> None:
        """reads_outputs: the frontend with this instance has a stream here."""
        self._address = address
        self._steps = steps
        self._make_hello, self._reads_outputs = make_hello, reads_outputs
        self._lost: dict[str, bool] = {}
        """Frontends whose loss the scheduler may not know, and whether it was attached and told."""
        self._outbox: Outbox[scheduler_pb2.AttachWorkerRequest] | None = None
        self._stream: Stream | None = None
        self._is_draining = False
        self.is_attached = False

    def report(self, report: scheduler_pb2.ModelRunnerOutput) -> None:
        """Sends a step's report. Without a stream it is dropped: the next hello says more."""
        self._put(scheduler_pb2.AttachWorkerRequest(outputs=[report]))

    def frontend_lost(self, instance: str) -> None:
        """Tells that nobody reads the outputs for a frontend; without a stream, after the next hello."""
        self._lost[instance] = self.is_attached
        self._tell_lost(instance)

    def _tell_lost(self, instance: str) -> None:
        event = scheduler_pb2.WorkerEvent(
            frontend_lost=scheduler_pb2.FrontendLost(frontend_instance=instance)
        )
        self._put(scheduler_pb2.AttachWorkerRequest(events=[event]))

    def tell_grammar(self, verdict: Verdict) -> None:
        """Tells what came of a grammar. Without a stream it is dropped: the next hello says more, and `announce`."""
        self._put(scheduler_pb2.AttachWorkerRequest(events=[delta.build_verdict(verdict)]))

    def tell_fence(self, fence: int, failure: Failure | None) -> None:
        """Tells that copies beside the steps have ended. Without a stream it is dropped: no fence outlives one."""
        self._put(scheduler_pb2.AttachWorkerRequest(events=[delta.build_fence_ended(fence, failure)]))

    def tell_draining(self) -> None:
        """Asks for nothing new, now and with each hello to come."""
        self._is_draining = True
        event = scheduler_pb2.WorkerEvent(draining=scheduler_pb2.Draining())
        self._put(scheduler_pb2.AttachWorkerRequest(events=[event]))

    def reconnect(self, reason: str) -> None:
        """Ends the stream, so that the scheduler is told where we stand."""
        logger.warning("leaving the scheduler's stream: %s", reason)
        if self._stream is not None:
            self._stream.cancel()

    def _put(self, message: scheduler_pb2.AttachWorkerRequest) -> None:
        if self._outbox is None:
            return
        try:
            self._outbox.put(message)
        except OutboxFullError as error:
            self.reconnect(str(error))

    async def run(self) -> None:
        """Until cancelled."""
        retry_s = FIRST_RETRY_S
        async with rpc.channel(self._address) as channel:
            stub = scheduler_pb2_grpc.SchedulerServiceStub(channel)
            while True:
                try:
                    await self._attach(stub)
                    retry_s = FIRST_RETRY_S
                except grpc.aio.AioRpcError as error:
                    if self.is_attached:
                        retry_s = FIRST_RETRY_S
                    logger.warning("no link to the scheduler at %s: %s", self._address, error.details())
                finally:
                    self.is_attached, self._outbox, self._stream = False, None, None
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, LONGEST_RETRY_S)

    async def _attach(self, stub: scheduler_pb2_grpc.SchedulerServiceStub) -> None:
        """One stream, from hello to its end."""
        hello = self._make_hello()
        snapshot = await asyncio.wrap_future(self._steps.snapshot())
        if snapshot is not None:
            hello.snapshot.CopyFrom(snapshot)
        stream = self._stream = stub.AttachWorker()
        outbox = self._outbox = Outbox[scheduler_pb2.AttachWorkerRequest](MAX_OUTBOX)
        outbox.put(scheduler_pb2.AttachWorkerRequest(hello=hello))
        lost = self._still_lost(hello)
        self._lost = {instance: self._lost[instance] for instance in lost}
        for instance in lost:
            self._tell_lost(instance)
        if self._is_draining:
            self.tell_draining()
        self._steps.announce()
        try:
            await rpc.run_until_first_ends(
                self._read(stream, lost), _write(outbox, stream), self._say_alive()
            )
        finally:
            stream.cancel()

    def _still_lost(self, hello: scheduler_pb2.WorkerHello) -> list[str]:
        """Frontends to be named with `hello`: they have requests here, and did not come back after it was told."""
        holders = {slot.frontend_instance for slot in hello.snapshot.slots}
        return [
            instance
            for instance, told in self._lost.items()
            if instance in holders and not (told and self._reads_outputs(instance))
        ]

    async def _read(self, stream: Stream, lost: list[str]) -> None:
        """lost: frontends that were named with the hello."""
        async for message in stream:
            if not self.is_attached:  # the scheduler has taken the hello
                logger.info("attached to the scheduler at %s", self._address)
                self.is_attached = True
                for instance in lost:  # they travelled with the hello
                    self._lost.pop(instance, None)
            self._steps.put(message)

    async def _say_alive(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_S)
            age = int(self._steps.step_age_s * 1000)
            event = scheduler_pb2.WorkerEvent(alive=scheduler_pb2.Alive(oldest_step_ms=age))
            self._put(scheduler_pb2.AttachWorkerRequest(events=[event]))


async def _write(outbox: Outbox[scheduler_pb2.AttachWorkerRequest], stream: Stream) -> None:
    """The one writer of the stream: what waits travels in one message."""
    while True:
        first, *others = await outbox.take()
        for other in others:
            first.MergeFrom(other)
        await stream.write(first)
