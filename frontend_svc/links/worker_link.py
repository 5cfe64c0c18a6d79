"""The output stream of one worker process: open before a token comes, always drained, opened again when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import grpc

from frontend_svc.links import outputs
from frontend_svc.links.orders import Order, Orders
from frontend_svc.links.redial import Backoff, check_spoken, describe
from frontend_svc.links.worker_process import WorkerProcess
from frontend_svc.requests.sessions.session_table import SessionTable
from signalbox.links import reach, rpc, versions
from signalbox.links.heartbeat import HEARTBEAT_S, Silence
from signalbox.links.readable import EOF, read_message
from signalbox.links.tls.roles import Role
from signalbox.protocol.enums import WorkerReach
from signalbox.v1 import worker_pb2 as worker_pb
from signalbox.v1.worker_pb2_grpc import WorkerServiceStub

log = logging.getLogger(__name__)

ACKNOWLEDGE_EVERY_S = 0.05


UNLISTED_S = 10.0
"""How long an unlisted worker is dialled, if requests may be there: its scheduler may be restarting meanwhile."""


class WorkerLink:
    """Runs while the directory lists the worker. An unlisted one is heard until it is gone."""

    def __init__(
        self,
        process: WorkerProcess,
        frontend_instance: str,
        table: SessionTable,
        orders: Orders,
        on_reach: Callable[[WorkerLink], None],
        on_cut_off: Callable[[WorkerLink], None],
        on_obeyed: Callable[[int, str], None],
        *,
        silence_s: float,
        unreachable_s: float,
    ) -> None:
        """`on_reach` hears when `process.reach` has changed. `on_cut_off` hears when nothing was heard for
        `unreachable_s`, and at each look from then on. `on_obeyed` hears term and instance of whom the worker obeys."""
        self.process = process
        self.listed = True
        """The directory names the worker."""
        self.is_open = False
        self._frontend_instance = frontend_instance
        self._table = table
        self._orders = orders
        self._on_reach = on_reach
        self._on_cut_off = on_cut_off
        self._on_obeyed = on_obeyed
        self._silence_s = silence_s
        self._unreachable_s = unreachable_s
        self._silence = Silence(silence_s, table.clock())
        self._closed_s = table.clock()
        """When the last stream ended."""
        self._asked_s = self._closed_s
        """When all requests of the worker were last asked about, because nothing was heard."""
        self._given_up = asyncio.Event()
        """The open stream has been silent for too long: its connection may be dead, and the worker not. What was not
        acknowledged comes again on the next one."""
        self._unsaid: list[Order] = []
        self._has_news = asyncio.Event()
        """There is something to acknowledge or to order."""

    @property
    def worker_id(self) -> str:
        """The id of the worker whose process it is."""
        return self.process.worker.worker_id

    async def run(self) -> None:
        """Runs until the worker is unlisted and gone, or until cancelled."""
        await rpc.run_until_first_ends(self._keep_open(), self._keep_watching())

    def tell(self, orders: Iterable[Order]) -> None:
        """Says them on the open stream; the next one begins with all of them."""
        if self.is_open:
            self._unsaid.extend(orders)
            self._has_news.set()

    # ---- one stream after the other

    async def _keep_open(self) -> None:
        backoff = Backoff()
        while self._is_wanted():
            try:
                # An old channel would wait before it connects again.
                async with rpc.channel(self.process.worker.address, Role.WORKER) as channel:
                    await self._stream(WorkerServiceStub(channel), backoff)
            except (grpc.aio.AioRpcError, TimeoutError, ConnectionError) as error:
                if backoff.is_first:
                    log.warning("no outputs from worker %s: %s", self.worker_id, describe(error))
            except Exception:
                log.exception("the link to worker %s failed", self.worker_id)
            if await reach.refuses(self.process.worker.address):
                self._reach(WorkerReach.REFUSED)
            await asyncio.sleep(backoff.next_s())

    def _is_wanted(self) -> bool:
        is_gone = (
            self.process.reach is WorkerReach.REFUSED or self._table.clock() - self._closed_s > UNLISTED_S
        )
        return self.listed or (not is_gone and bool(self._table.may_be_on(self.worker_id)))

    async def _stream(self, stub: Any, backoff: Backoff) -> None:
        """One stream, from our first message to its end."""
        call = stub.StreamOutputs()
        try:
            async with asyncio.timeout(self._silence_s):
                await call.write(self._make_hello())
                response = await read_message(call)
            if response is EOF:
                return
            if response.worker_instance not in ("", self.process.worker.instance):
                self._reach(
                    WorkerReach.REFUSED
                )  # another process has the address: the directory will name it
                return
            check_spoken(response.protocol, f"worker {self.worker_id}")
            backoff.reset()
            self._meet_log(response.log_number)
            self.is_open = True
            self._take(response)
            await rpc.run_until_first_ends(self._read(call), self._write(call), self._wait_for_its_end())
        finally:
            if self.is_open:
                self.is_open, self._closed_s = False, self._table.clock()
            call.cancel()

    def _make_hello(self) -> worker_pb.StreamOutputsRequest:
        self._unsaid.clear()
        orders: Sequence[Order] = ()
        if self._orders.is_needed:
            orders = self._orders.whole(self.worker_id, self._table.may_be_on(self.worker_id))
        return worker_pb.StreamOutputsRequest(
            frontend_instance=self._frontend_instance,
            acknowledged=self.process.sequence,
            worker_instance=self.process.worker.instance,
            log_number=self.process.log_number,
            protocol=versions.ours(),
            operations=[_make_operation(order) for order in orders],
        )

    async def _write(self, call: Any) -> None:
        """The only writer after the first message: what is new at most every ACKNOWLEDGE_EVERY_S, else heartbeats."""
        while not call.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_news.wait(), HEARTBEAT_S - ACKNOWLEDGE_EVERY_S)
            self._has_news.clear()
            orders, self._unsaid = self._unsaid, []
            request = worker_pb.StreamOutputsRequest(
                acknowledged=self.process.sequence, operations=[_make_operation(order) for order in orders]
            )
            await call.write(request)
            await asyncio.sleep(ACKNOWLEDGE_EVERY_S)

    async def _wait_for_its_end(self) -> None:
        self._given_up.clear()
        await self._given_up.wait()
        log.warning("worker %s says nothing: another stream is opened", self.worker_id)

    # ---- what it says

    async def _read(self, call: Any) -> None:
        while (response := await read_message(call)) is not EOF:
            self._take(response)

    def _meet_log(self, log_number: int) -> None:
        """Another log than the last one starts anew, and what stood in the old one unread is gone."""
        if log_number != self.process.log_number:
            self.process.log_number, self.process.sequence = log_number, 0
            self._check_all()

    def _take(self, response: worker_pb.StreamOutputsResponse) -> None:
        now = self._table.clock()
        self._silence.heard(now)
        self._reach(WorkerReach.HEARD)
        if response.scheduler_epoch:
            self._on_obeyed(response.scheduler_epoch, response.scheduler_instance)
        for batch in response.batches:
            if batch.sequence <= self.process.sequence:
                continue
            if batch.sequence > self.process.sequence + 1:
                self._recover("skipped messages")
            self.process.sequence = batch.sequence
            self._has_news.set()
            try:
                outputs.feed(batch, self._table, now, self.worker_id, self.process.worker.identity)
            except ValueError as error:
                self._recover(f"sent a broken message: {error}")
        if response.batches:
            # The handlers that were woken stand in the loop's queue ahead of this.
            asyncio.get_running_loop().call_soon(self._tell_delivered, now)

    def _tell_delivered(self, since: float) -> None:
        self._table.observer.on_delivered(self._table.clock() - since)

    def _recover(self, what: str) -> None:
        """An end may be among what is missing, so that its client would wait for ever."""
        log.error("worker %s %s", self.worker_id, what)
        self._table.restart_all(self.worker_id, "output of its worker was lost")

    # ---- whether it says anything

    async def _keep_watching(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            now = self._table.clock()
            is_silent = self._silence.is_silent(now)
            if self.is_open and is_silent:
                self._reach(WorkerReach.SILENT)
            if not (self.listed and is_silent and self._is_overdue(now)):
                continue
            if now - self._asked_s >= self._unreachable_s:
                self._asked_s = now
                if not self.is_open and self.process.reach is not WorkerReach.REFUSED:
                    self._reach(WorkerReach.UNREACHABLE)
                self._check_all()
                self._given_up.set()
            self._on_cut_off(self)  # a request that came there later is overdue later

    def _is_overdue(self, now: float) -> bool:
        """Nothing was heard for unreachable_s, on this stream or on those before it."""
        return self._silence.lasts_s(now) >= self._unreachable_s

    def _check_all(self) -> None:
        self._table.check_all(self.worker_id, self.process.worker.instance)

    def _reach(self, state: WorkerReach) -> None:
        if self.process.reach is not state:
            self.process.reach = state
            log.log(
                logging.INFO if state is WorkerReach.HEARD else logging.WARNING,
                "worker %s is %s",
                self.worker_id,
                state.name.lower(),
            )
            self._on_reach(self)


def _make_operation(order: Order) -> worker_pb.AttemptOperation:
    return worker_pb.AttemptOperation(
        attempt=order.attempt,
        action=order.action,  # type: ignore[arg-type]
    )
