"""The links of all workers, and what is known of their processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from frontend_svc.links.known_leader import KnownLeader
from frontend_svc.links.orders import Order
from frontend_svc.links.worker_link import WorkerLink
from frontend_svc.links.worker_process import Holders, WorkerProcess, find_holders
from frontend_svc.models import Worker
from frontend_svc.requests.sessions.session import Session
from frontend_svc.services import Services
from signalbox.protocol.enums import WorkerReach
from signalbox.runtime.parts import FAILURES

MAX_PROCESSES = 1024
"""Known ones; those that were met first and have no link are forgotten."""
REOPEN_S = 1.0
"""After which a link that a bug has ended is opened again."""


class WorkerLinks:
    """The links to all workers, by the UUID of their processes."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.leader = KnownLeader()
        """The newest scheduler that a worker has said to obey."""
        self._table, self._orders = services.table, services.orders
        self._processes: dict[str, WorkerProcess] = {}
        """Known ones, with a link or without."""
        self._links: dict[str, WorkerLink] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._orders.connect(self._tell)

    def update(self, workers: Sequence[Worker], *, is_first: bool) -> None:
        """Takes a whole new directory: opens links to new workers at once. `is_first`: of a new stream, whose hello has
        asked for all requests already."""
        gone = {link.worker_id for link in self._links.values() if link.listed}
        for worker_id in gone - {worker.worker_id for worker in workers}:
            if not is_first:
                self._table.check_all(worker_id, "")
        listed = {worker.instance for worker in workers}
        for instance, link in self._links.items():
            link.listed = instance in listed
        for worker in workers:
            if worker.instance not in self._links:
                self._open(worker)
        self._forget_unlinked({worker.worker_id for worker in workers})

    def is_open(self, worker: Worker) -> bool:
        """The worker's output stream is open."""
        link = self._links.get(worker.instance)
        return link is not None and link.is_open

    def reach(self) -> Iterable[tuple[str, WorkerReach]]:
        """How every listed worker is reached from here, as (worker id, reach)."""
        return [(link.worker_id, link.process.reach) for link in self._links.values() if link.listed]

    def find_holders(self, sessions: Iterable[Session]) -> Holders:
        """Which worker processes may have the requests of `sessions`."""
        return find_holders(self._processes.values(), sessions)

    def outputs_lost(self, worker_id: str, worker_instance: str) -> None:
        """The worker has thrown away what we had not read; ends may have been among it."""
        self._table.check_all(worker_id, worker_instance)

    # ---- the scheduler comes and goes

    def scheduler_lost(self) -> None:
        """Has the workers told what clients want from now on: there is no scheduler."""
        self._orders.begin()
        for link in self._links.values():
            link.tell(self._orders.whole(link.worker_id, self._table.may_be_on(link.worker_id)))

    def scheduler_found(self) -> None:
        """A new link to a scheduler: it takes all workers for heard."""
        self._orders.end()
        for link in self._links.values():
            if link.process.reach is not WorkerReach.HEARD:
                self._on_reach(link)

    def _tell(self, worker_id: str, order: Order) -> None:
        for link in self._links.values():
            if worker_id in ("", link.worker_id):
                link.tell([order])

    def _on_reach(self, link: WorkerLink) -> None:
        self._services.operations.say_reach(link.process.worker, link.process.reach)

    def _on_cut_off(self, link: WorkerLink) -> None:
        """The scheduler may well hear the worker and leave its requests there: only we know that nothing comes of it.
        They are moved when there is somewhere to go."""
        model = link.process.worker.model
        others = (other for other in self._links.values() if other.listed and other.is_open)
        if not self._orders.is_needed and any(
            other.process.reach is WorkerReach.HEARD and other.process.worker.model == model
            for other in others
        ):
            reason = f"worker {link.worker_id} is out of its frontend's reach"
            self._table.leave(link.worker_id, reason, self._services.settings.unreachable_s)

    # ---- links come and go

    async def close(self) -> None:
        """Ends all links."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _open(self, worker: Worker) -> None:
        process = self._processes.setdefault(worker.instance, WorkerProcess(worker))
        was_heard = process.reach is WorkerReach.HEARD
        process.worker, process.reach = worker, WorkerReach.HEARD
        link = WorkerLink(
            process,
            self._services.instance,
            self._table,
            self._orders,
            self._on_reach,
            self._on_cut_off,
            self.leader.hear,
            silence_s=self._services.settings.worker_silence_ms / 1e3,
            unreachable_s=self._services.settings.unreachable_s,
        )
        task = asyncio.create_task(link.run())
        self._links[worker.instance] = link
        if not was_heard:  # the scheduler would keep requests from it for good
            self._on_reach(link)
        self._tasks[worker.instance] = task
        task.add_done_callback(lambda done: self._link_ended(link, done))

    def _link_ended(self, link: WorkerLink, task: asyncio.Task[None]) -> None:
        """A link that a bug has ended is opened again as long as its worker is listed."""
        worker = link.process.worker
        self._forget_link(worker.instance)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            FAILURES.add("worker-links", error)
            asyncio.get_running_loop().call_later(REOPEN_S, self._open_again, link, worker)

    def _open_again(self, link: WorkerLink, worker: Worker) -> None:
        if link.listed and worker.instance not in self._links:
            self._open(worker)

    def _forget_link(self, instance: str) -> None:
        del self._links[instance], self._tasks[instance]
        self._forget_unlinked({link.worker_id for link in self._links.values() if link.listed})

    def _forget_unlinked(self, listed: set[str]) -> None:
        """Processes in whose place others stand, and the oldest of too many."""
        for instance, process in list(self._processes.items()):
            is_too_many = len(self._processes) > MAX_PROCESSES
            if instance not in self._links and (process.worker.worker_id in listed or is_too_many):
                del self._processes[instance]
