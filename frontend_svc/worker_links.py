"""The output streams of the workers: one for each, open before a token comes and always drained."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import grpc

from frontend_svc import outputs
from frontend_svc.link import EOF, Backoff, describe
from frontend_svc.models import Worker
from frontend_svc.sessions import SessionTable
from signalbox import rpc
from signalbox.v1 import worker_pb2 as worker_pb
from signalbox.v1.worker_pb2_grpc import WorkerServiceStub

log = logging.getLogger(__name__)

ACKNOWLEDGE_EVERY_S = 0.05


class WorkerLink:
    """The stream of one worker process, opened again when it breaks while the directory lists the worker."""

    def __init__(self, worker: Worker, frontend_instance: str, table: SessionTable) -> None:
        self.worker = worker
        self.listed = True
        """The directory names the worker. An unlisted one is heard until its stream breaks: its scheduler may
        be restarting while it goes on."""
        self.is_open = False
        self._frontend_instance = frontend_instance
        self._table = table
        self._sequence = 0
        """Newest message processed, of the log `_log_number`."""
        self._log_number = 0
        """0 before the first stream: this process is new to us."""
        self._advanced = asyncio.Event()

    async def run(self) -> None:
        """Runs until the worker is unlisted and gone, or until cancelled."""
        backoff = Backoff()
        async with rpc.channel(self.worker.address) as channel:
            stub: Any = WorkerServiceStub(channel)
            while self.listed:
                try:
                    await self._stream(stub, backoff)
                except grpc.aio.AioRpcError as error:
                    if backoff.is_first:
                        log.warning("no outputs from worker %s: %s", self.worker.worker_id, describe(error))
                except Exception:
                    log.exception("the link to worker %s failed", self.worker.worker_id)
                await asyncio.sleep(backoff.next_s())

    async def _stream(self, stub: Any, backoff: Backoff) -> None:
        """One stream, from our first message to its end."""
        call = stub.StreamOutputs()
        try:
            hello = worker_pb.StreamOutputsRequest(
                frontend_instance=self._frontend_instance,
                acknowledged=self._sequence,
                worker_instance=self.worker.instance,
                log_number=self._log_number,
            )
            await call.write(hello)
            response = await call.read()
            if not self._is_ours(response):
                return
            backoff.reset()
            self._meet_log(response.log_number)
            self.is_open = True
            self._take(response)
            await rpc.run_until_first_ends(self._read(call), self._acknowledge(call))
        finally:
            self.is_open = False
            call.cancel()

    async def _read(self, call: Any) -> None:
        while (response := await call.read()) is not EOF:
            self._take(response)

    def _is_ours(self, response: Any) -> bool:
        """Another process may have taken the address: the directory will name it, with numbers from 1."""
        return response is not EOF and response.worker_instance in ("", self.worker.instance)

    def _meet_log(self, log_number: int) -> None:
        """Another log than the last one starts anew, and what stood in the old one unread is gone."""
        if log_number != self._log_number:
            self._log_number, self._sequence = log_number, 0
            self._table.check_all(self.worker.worker_id, self.worker.instance)

    def _take(self, response: worker_pb.StreamOutputsResponse) -> None:
        now = self._table.clock()
        for batch in response.batches:
            if batch.sequence <= self._sequence:
                continue
            if batch.sequence > self._sequence + 1:
                self._recover("skipped messages")
            self._sequence = batch.sequence
            self._advanced.set()
            try:
                outputs.feed(batch, self._table, now, self.worker.worker_id)
            except ValueError as error:
                self._recover(f"sent a broken message: {error}")
        if response.batches:
            # The handlers that were woken stand in the loop's queue ahead of this.
            asyncio.get_running_loop().call_soon(self._tell_delivered, now)

    def _tell_delivered(self, since: float) -> None:
        self._table.observer.on_delivered(self._table.clock() - since)

    def _recover(self, what: str) -> None:
        """An end may be among what is missing, so that its client would wait for ever."""
        log.error("worker %s %s", self.worker.worker_id, what)
        self._table.restart_all(self.worker.worker_id, "output of its worker was lost")

    async def _acknowledge(self, call: Any) -> None:
        """The only writer after the first message: at most one acknowledgement every ACKNOWLEDGE_EVERY_S."""
        while not call.done():
            await self._advanced.wait()
            self._advanced.clear()
            await call.write(worker_pb.StreamOutputsRequest(acknowledged=self._sequence))
            await asyncio.sleep(ACKNOWLEDGE_EVERY_S)


class WorkerLinks:
    """The links of all workers, by the UUID of their processes."""

    def __init__(self, frontend_instance: str, table: SessionTable) -> None:
        self._frontend_instance = frontend_instance
        self._table = table
        self._links: dict[str, WorkerLink] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def update(self, workers: Sequence[Worker]) -> None:
        """Takes a whole new directory: opens links to new workers at once."""
        gone = {link.worker.worker_id for link in self._links.values() if link.listed}
        for worker_id in gone - {worker.worker_id for worker in workers}:
            self._table.check_all(worker_id, "")
        listed = {worker.instance for worker in workers}
        for instance, link in self._links.items():
            link.listed = instance in listed
        for worker in workers:
            if worker.instance not in self._links:
                self._open(worker)

    def is_open(self, worker: Worker) -> bool:
        """The worker's output stream is open."""
        link = self._links.get(worker.instance)
        return link is not None and link.is_open

    async def close(self) -> None:
        """Ends all links."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _open(self, worker: Worker) -> None:
        link = WorkerLink(worker, self._frontend_instance, self._table)
        task = asyncio.create_task(link.run())
        self._links[worker.instance] = link
        self._tasks[worker.instance] = task
        task.add_done_callback(lambda _: self._forget(worker.instance))

    def _forget(self, instance: str) -> None:
        del self._links[instance], self._tasks[instance]
