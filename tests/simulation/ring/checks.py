"""The rules of a ring: those that hold after every event, and those that hold when all is over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from scheduler_svc.core.parts.pulls.part import pulls_of
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.worker import Worker
from tests.simulation.reference import check_fences, check_lag, check_scheduler
from tests.simulation.ring.clock import Process
from tests.simulation.ring.nodes import SchedulerNode, WorkerNode
from tests.simulation.ring.pull_watch import check_pulls
from tests.simulation.ring.server import Server

if TYPE_CHECKING:
    from tests.simulation.ring.ring import Ring


class Checks:
    """Looks at what an event concerned."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    def after_event(self, process: Process) -> None:
        """To be called behind an event of a process."""
        node = process.node
        if isinstance(node, SchedulerNode):
            self._check_scheduler(node)
        elif isinstance(node, WorkerNode) and node.core is not None:
            node.core.table.check_integrity()
            self._check_pair(node)

    def _check_scheduler(self, node: SchedulerNode) -> None:
        if node.core is None:
            return
        node.core.check_integrity()
        self.ring.masks.looked_at(node.core)
        strangers = {key.frontend_instance for key in node.core.requests} - set(
            node.core.frontends.by_instance
        )
        assert not strangers, f"requests of frontends that nobody knows: {strangers}"
        for worker in node.core.workers.values():
            check_scheduler(worker)
        for worker_node in self.ring.workers:
            self._check_pair(worker_node)

    def _check_pair(self, node: WorkerNode) -> None:
        """What the scheduler that a worker obeys knows of it lags, and never leads."""
        if node.core is None or not node.is_running or not node.link.is_attached:
            return
        if node.core.scheduler_epoch != node.link._terms.highest:
            return  # the greeting stands behind a step that runs: its core obeys nobody yet
        for scheduler in self.ring.schedulers:
            core = scheduler.core if scheduler.is_running else None
            if core is None or core.epoch != node.core.scheduler_epoch:
                continue
            worker = core.workers.get(node.worker_id)
            if worker is None or not worker.attached or worker.info.instance != node.worker_instance:
                continue
            if worker.last_reported > node.core.last_step_id:
                continue
            check_lag(worker, node.core.table)
            check_fences(worker, node.steps.copier.open)
            check_pulls(worker, node)

    # -- at the end --

    def what_is_left(self) -> str:
        """What should be gone when no client waits any more; empty: nothing."""
        leaders = [node for node in self.ring.schedulers if node.is_running and node.core is not None]
        if not leaders:
            return "no scheduler leads"
        core = max(leaders, key=lambda node: node.core.epoch).core
        return next(filter(None, (*self._left_at(core), *self._left_elsewhere())), "")

    def _left_at(self, core: Scheduler) -> Iterator[str]:
        """At the scheduler."""
        if core.requests:
            yield f"the scheduler knows {[str(key) for key in core.requests]}"
        if len(core.unaccounted):
            yield f"{len(core.unaccounted)} requests are unaccounted"
        if len(core.workers) != len({node.worker_id for node in self.ring.workers if node.is_wanted}):
            yield f"workers are {list(core.workers)}"
        for worker in core.workers.values():
            yield _left_of(worker)
        for instance, frontend in core.frontends.by_instance.items():
            if frontend.paused and not IGNORES_PAUSED:
                yield f"paused requests of {instance}: {frontend.paused}"
        num_living = sum(node.is_running for node in self.ring.frontends)
        if len(core.frontends.by_instance) > num_living:
            yield f"frontends that are gone are known: {list(core.frontends.by_instance)}"

    def _left_elsewhere(self) -> Iterator[str]:
        """In workers and frontends."""
        for node in self.ring.workers:
            if node.is_wanted and (node.core is None or np.any(node.core.table.status)):
                yield f"{node.name} keeps slots"
            for call in _pulls_at(node):
                yield f"{call} still reads what {node.name} hands over"
        for frontend_node in self.ring.frontends:
            frontend = frontend_node.frontend
            if frontend_node.is_running and frontend is not None and len(frontend.table):
                yield f"{frontend_node.name} keeps sessions"


def _pulls_at(node: WorkerNode) -> Iterator[str]:
    """Other workers that have a call at this one."""
    for owner, server in node.ring.network.listeners.values():
        if isinstance(server, Server) and owner is node.process:
            for connection in server.connections:
                peer = connection.end.peer.process
                if connection.calls and isinstance(peer.node, WorkerNode):
                    yield peer.name


IGNORES_PAUSED = False


def _left_of(worker: Worker) -> str:
    """Of what a scheduler knows of a worker."""
    name = worker.info.worker_id
    if not worker.attached:
        return f"worker {name} is not attached"
    if worker.table.num_free_slots != worker.table.num_slots:
        return f"slots of {name} are held"
    if any(pool.num_available != pool.num_blocks for pool in worker.pools):
        return f"blocks of {name} are held"
    pulls = pulls_of(worker)
    if pulls is not None and pulls.shown:
        return f"others read blocks of {name}"
    return f"fences of {name} are open" if worker.fences else ""
