"""The one stream to the scheduler: operations up; placements, losses and the worker directory down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from frontend_svc.link import EOF, Backoff, describe
from frontend_svc.losses import LossCause
from frontend_svc.models import ModelDirectory, Worker
from frontend_svc.operations import OperationQueue
from frontend_svc.sessions import SessionTable
from frontend_svc.submission import make_ref
from signalbox import rpc
from signalbox.errors import ResourceExhaustedError, SignalboxError, UnavailableError, from_code
from signalbox.v1 import generation_pb2 as generation
from signalbox.v1 import scheduler_pb2 as scheduler
from signalbox.v1.scheduler_pb2_grpc import SchedulerServiceStub

log = logging.getLogger(__name__)

FIRST_MESSAGE_S = 10.0
EXPIRE_EVERY_S = 0.1


class SchedulerLink:
    """Keeps the stream up, and feeds what it brings to the sessions."""

    def __init__(
        self,
        address: str,
        frontend_instance: str,
        *,
        queue: OperationQueue,
        table: SessionTable,
        directory: ModelDirectory,
        on_workers: Callable[[Sequence[Worker]], None],
        queue_s: float,
    ) -> None:
        """`on_workers` hears of every new directory; `queue_s`: how long a submit waits for a broken link."""
        self.connected = False
        self._address = address
        self._frontend_instance = frontend_instance
        self._queue = queue
        self._table = table
        self._directory = directory
        self._on_workers = on_workers
        self._queue_s = queue_s

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_attached())
            group.create_task(self._keep_expiring())

    async def drained(self) -> None:
        """Returns when all that was queued has been sent, or cannot be."""
        while self.connected and not self._queue.is_empty:
            await asyncio.sleep(0.01)

    async def _keep_attached(self) -> None:
        backoff = Backoff()
        async with rpc.channel(self._address) as channel:
            stub: Any = SchedulerServiceStub(channel)
            while True:
                try:
                    await self._attach(stub, backoff)
                    log.warning("the scheduler at %s ended the link", self._address)
                except (grpc.aio.AioRpcError, TimeoutError) as error:
                    if backoff.is_first:
                        log.warning("no link to the scheduler at %s: %s", self._address, describe(error))
                except Exception:
                    log.exception("the link to the scheduler failed")
                await asyncio.sleep(backoff.next_s())

    async def _attach(self, stub: Any, backoff: Backoff) -> None:
        """One stream, from hello to its end."""
        call = stub.AttachFrontend()
        try:
            await call.write(scheduler.AttachFrontendRequest(hello=self._make_hello()))
            async with asyncio.timeout(FIRST_MESSAGE_S):
                response = await call.read()
            if response is EOF:
                return
            log.info("attached to the scheduler at %s", self._address)
            backoff.reset()
            self._take(response)
            self.connected = True
            await rpc.run_until_first_ends(self._read(call), self._write(call))
        finally:
            self.connected = False
            call.cancel()

    def _make_hello(self) -> scheduler.FrontendHello:
        live = [session for session in self._table if session.submitted]
        return scheduler.FrontendHello(
            frontend_instance=self._frontend_instance,
            live=[make_ref(session) for session in live],
            paused=[make_ref(session) for session in live if session.paused_s is not None],
        )

    async def _read(self, call: Any) -> None:
        while (response := await call.read()) is not EOF:
            self._take(response)

    async def _write(self, call: Any) -> None:
        """The only writer from here on: all that is queued goes into one message."""
        while not call.done():
            await self._queue.wait()
            if operations := self._queue.take():
                await call.write(scheduler.AttachFrontendRequest(operations=operations))

    def _take(self, response: scheduler.AttachFrontendResponse) -> None:
        if response.HasField("workers"):
            workers = [_worker_of(entry) for entry in response.workers.workers]
            self._directory.replace(workers)
            self._on_workers(workers)
        for placed in response.placed:
            self._take_placed(placed)
        for rejected in response.rejected:
            if session := self._table.by_attempt(rejected.ref.attempt):
                session.on_rejected(rejected.ref.attempt, _error_of(rejected.error))
        if response.lost:
            log.warning("%d requests were lost: %s", len(response.lost), response.lost[0].reason)
        for lost in response.lost:
            if session := self._table.by_attempt(lost.ref.attempt):
                session.on_lost(lost.ref.attempt, lost.reason, LossCause(lost.cause))

    def _take_placed(self, placed: scheduler.RequestPlaced) -> None:
        session = self._table.by_attempt(placed.ref.attempt)
        if session is None:
            return
        if self._directory.is_misfit(placed.worker_id):
            session.fail(UnavailableError(f"the worker {placed.worker_id} has another tokenizer"))
        else:
            session.on_placed(placed.ref.attempt, placed.worker_id, placed.num_cached_tokens)

    async def _keep_expiring(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            if not self.connected:
                self._queue.expire(self._queue_s)


def _error_of(message: generation.Error) -> SignalboxError:
    error = from_code(message.code, message.message, message.field)
    if isinstance(error, ResourceExhaustedError):
        error.retry_after_s = message.retry_after_ms / 1e3 or None
    return error


def _worker_of(entry: scheduler.WorkerEntry) -> Worker:
    model = entry.model
    return Worker(
        worker_id=entry.worker_id,
        instance=entry.worker_instance,
        address=entry.address,
        model=model.model,
        max_model_len=model.max_model_len,
        block_size=model.block_size,
        max_request_tokens=model.max_request_tokens or model.max_model_len,
        vocab_size=model.vocab_size,
        tokenizer_fingerprint=model.tokenizer_fingerprint,
    )
