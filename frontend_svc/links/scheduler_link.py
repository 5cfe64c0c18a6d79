"""The one stream to the scheduler: operations up; placements, losses and the worker directory down."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import grpc

from frontend_svc.links.budgets import make_report, take_loan
from frontend_svc.links.redial import Backoff, check_spoken, describe
from frontend_svc.links.submission import make_ref, make_worker_ref
from frontend_svc.links.worker_links import WorkerLinks
from frontend_svc.models import Worker
from frontend_svc.services import Services
from signalbox.errors import ResourceExhaustedError, SignalboxError, UnavailableError, from_code
from signalbox.links import rpc, versions
from signalbox.links.addresses import read_address
from signalbox.links.heartbeat import HEARTBEAT_S, Silence
from signalbox.links.leader import Leader, LeaderSearch
from signalbox.links.readable import EOF, read_message
from signalbox.protocol.enums import LossCause, ModelTask
from signalbox.protocol.model_identity import ModelIdentity
from signalbox.protocol.terms import MAX_TERM
from signalbox.v1 import from_frontend_pb2, to_frontend_pb2
from signalbox.v1 import generation_pb2 as generation
from signalbox.v1.scheduler_pb2_grpc import SchedulerServiceStub

log = logging.getLogger(__name__)

EXPIRE_EVERY_S = 0.1


class SchedulerLink:
    """Keeps the stream up, to whichever scheduler leads, and feeds what it brings to the sessions."""

    def __init__(self, services: Services, workers: WorkerLinks) -> None:
        settings = services.settings
        self.connected = False
        self._search = LeaderSearch(settings.scheduler)
        self.address = self._search.addresses[0]
        """host:port of the scheduler that leads, or led last."""
        self._frontend_instance = services.instance
        self._queue, self._workers = services.operations, workers
        self._lender = services.lender
        self._table, self._directory = services.table, services.directory
        self._queue_s = settings.queue_s
        """How long a new request waits for a scheduler."""
        self._lost_scheduler_s = settings.lost_scheduler_s
        """How long one that was submitted waits for a scheduler or a token."""
        self._silence_s = services.silence_s
        self._silence = Silence(self._silence_s, self._table.clock())
        self._lost_at_s = self._table.clock()
        """When the last link ended, on the clock of sessions."""
        self._num_hellos = 0
        self._heard = 0
        """Newest word of the scheduler that is to be acknowledged (HO20); 0: there is none."""
        self._term = 0
        """Highest of a scheduler that a link was open to."""

    async def run(self) -> None:
        """Dials the scheduler, and again whenever a link ends, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_attached())
            group.create_task(self._keep_expiring())

    async def drained(self) -> None:
        """Returns when all that was queued has been sent, or cannot be."""
        while self.connected and not self._queue.is_empty:
            await asyncio.sleep(0.01)

    # ---- one stream after the other

    async def _keep_attached(self) -> None:
        backoff = Backoff()
        is_known_lost = False
        try:
            while True:
                try:
                    leader = await self._search.find(is_deposed=self._is_deposed)
                    is_known_lost = False
                    await self._attach(leader, backoff)
                    log.warning("the scheduler at %s ended the link", leader.address)
                except UnavailableError as error:  # the search has taken its time
                    if not is_known_lost:
                        log.warning("%s", error.message)
                    is_known_lost = True
                    continue
                except (grpc.aio.AioRpcError, TimeoutError, ConnectionError) as error:
                    if backoff.is_first:
                        log.warning("no link to the scheduler at %s: %s", self.address, describe(error))
                except Exception:
                    log.exception("the link to the scheduler failed")
                await asyncio.sleep(backoff.next_s())
        finally:
            await self._search.close()

    async def _attach(self, leader: Leader, backoff: Backoff) -> None:
        """One stream, from hello to its end."""
        self.address = leader.address
        stub: Any = SchedulerServiceStub(leader.channel)
        call = stub.AttachFrontend()
        try:
            async with asyncio.timeout(self._silence_s):
                await call.write(from_frontend_pb2.AttachFrontendRequest(hello=self._make_hello()))
                response = await read_message(call)
            if response is EOF:
                return
            check_spoken(response.protocol, f"the scheduler at {leader.address}")
            log.info("attached to the scheduler at %s", leader.address)
            backoff.reset()
            if response.scheduler_epoch > MAX_TERM:
                raise ConnectionError(f"its term {response.scheduler_epoch} is above {MAX_TERM}")
            self._term = max(self._term, response.scheduler_epoch)
            self._take(response, is_first=True)
            self.connected = True
            self._workers.scheduler_found()
            await rpc.run_until_first_ends(
                self._read(call),
                self._write(call),
                self._watch(),
                self._wait_for_successor(leader, response.scheduler_epoch),
            )
        finally:
            self._queue.end_link()
            self._lender.end()
            if self.connected:
                self.connected, self._lost_at_s = False, self._table.clock()
                self._workers.scheduler_lost()
            call.cancel()

    def _make_hello(self) -> from_frontend_pb2.FrontendHello:
        self._queue.begin_link()
        self._num_hellos += 1
        self._heard = 0
        live = [session for session in self._table if session.submitted]
        holders = self._workers.find_holders(live)
        return from_frontend_pb2.FrontendHello(
            frontend_instance=self._frontend_instance,
            live=[make_ref(session) for session in live],
            paused=[make_ref(session) for session in live if session.paused_s is not None],
            workers=[make_worker_ref(worker) for worker in holders.workers],
            num_holders=[len(places) for places in holders.places],
            holders=[place for places in holders.places for place in places],
            scheduler_epoch=self._term,
            protocol=versions.ours(),
            hello_number=self._num_hellos,
            acknowledges=True,
        )

    async def _write(self, call: Any) -> None:
        """The only writer from here on: all that is queued goes into one message, and an empty one is a heartbeat."""
        while not call.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._queue.wait(), HEARTBEAT_S)
            budgets = [make_report(name, report) for name, report in self._lender.take_reports()]
            heard, self._heard = self._heard, 0
            operations = self._queue.take()
            await call.write(
                from_frontend_pb2.AttachFrontendRequest(operations=operations, budgets=budgets, heard=heard)
            )

    async def _watch(self) -> None:
        """Returns when the scheduler has been silent for too long."""
        while not self._silence.is_silent(self._table.clock()):
            await asyncio.sleep(HEARTBEAT_S)
        log.warning("the scheduler at %s is silent", self.address)

    def _is_deposed(self, leader: Leader) -> bool:
        """A worker obeys a newer one (T6)."""
        return self._workers.leader.is_newer_than(leader.term, leader.instance)

    async def _wait_for_successor(self, leader: Leader, term: int) -> None:
        """Returns when this scheduler is to be left for one that a worker obeys. `term`: as it said when the link was
        opened, since when it may have risen."""
        known = self._workers.leader
        await known.until_newer_than(max(term, leader.term), leader.instance)
        await asyncio.sleep(known.next_stay_s())
        log.warning("the scheduler at %s has a successor, of term %d", leader.address, known.term)

    # ---- what it says

    async def _read(self, call: Any) -> None:
        while (response := await read_message(call)) is not EOF:
            self._take(response)
            if response.hears_nothing:
                log.warning("the scheduler at %s hears nothing of this frontend", self.address)
                return

    def _take(self, response: to_frontend_pb2.AttachFrontendResponse, *, is_first: bool = False) -> None:
        self._silence.heard(self._table.clock())
        if is_first:
            self._lender.begin(lends=response.lends_budgets)
        for loan in response.loans:
            take_loan(self._lender, loan)
        if response.HasField("workers"):
            workers = _workers_of(response.workers)
            self._directory.replace(workers)
            self._workers.update(workers, is_first=is_first)
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
        for worker in response.outputs_lost:
            self._workers.outputs_lost(worker.worker_id, worker.worker_instance)
        if response.told:
            self._heard = response.told
            self._queue.wake()

    def _take_placed(self, placed: to_frontend_pb2.RequestPlaced) -> None:
        session = self._table.by_attempt(placed.ref.attempt)
        if session is None:
            return
        if self._directory.is_misfit(placed.worker_id):
            message = f"the worker {placed.worker_id} has another tokenizer"
            session.fail(UnavailableError(message, passes=False))
        else:
            identity = self._directory.identity_of(placed.worker_id)
            num_cached = placed.num_cached_tokens
            session.on_placed(placed.ref.attempt, placed.worker_id, num_cached, identity, placed.leg)

    async def _keep_expiring(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            self._lender.tick()
            if not self.connected:
                self._queue.expire(self._queue_s)
                self._table.end_abandoned(self._lost_at_s, self._lost_scheduler_s)


MAX_NAME_CHARS = 256
KNOWN_TASKS = frozenset(map(int, ModelTask))
"""Workers may be newer than we are."""


def _error_of(message: generation.Error) -> SignalboxError:
    error = from_code(message.code, message.message, message.field)
    if isinstance(error, ResourceExhaustedError):
        error.retry_after_s = message.retry_after_ms / 1e3 or None
    return error


MAX_WORKERS = 4096
"""Largest number of workers of a directory that are dialled."""


def _workers_of(directory: to_frontend_pb2.WorkerDirectory) -> list[Worker]:
    """The workers that can be dialled, each once: whoever stands where the scheduler should be may list anything."""
    workers: dict[str, Worker] = {}
    for entry in directory.workers:
        if len(workers) < MAX_WORKERS and entry.worker_instance not in workers and _can_be(entry):
            workers[entry.worker_instance] = _worker_of(entry)
    if len(workers) != len(directory.workers):
        left_out = len(directory.workers) - len(workers)
        log.warning("%d workers of the directory cannot be, or are too many, and are not dialled", left_out)
    return list(workers.values())


def _can_be(entry: to_frontend_pb2.WorkerEntry) -> bool:
    names = entry.worker_id, entry.worker_instance, entry.address
    if not all(0 < len(name) <= MAX_NAME_CHARS and name.isprintable() for name in names):
        return False
    try:
        read_address(entry.address)
    except ValueError:
        return False
    return entry.model.block_size > 0


def _worker_of(entry: to_frontend_pb2.WorkerEntry) -> Worker:
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
        tasks=tuple(ModelTask(number) for number in map(int, model.tasks) if number in KNOWN_TASKS),
        identity=ModelIdentity(model.identity.weights, model.identity.form, model.identity.number_class),
    )
