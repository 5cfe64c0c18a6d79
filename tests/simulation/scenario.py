"""One simulated run of the ring, with every rule of the design checked after every event."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from scheduler_svc.core.parts.disk.part import disk_of
from scheduler_svc.core.state.config import SchedulerConfig
from signalbox.protocol.enums import ModelTask
from tests.simulation.disk import NodeDisk, SharedDisk, check_owned
from tests.simulation.frontend_node import FrontendNode
from tests.simulation.reference import check_fences, check_lag, check_scheduler
from tests.simulation.scheduler_node import SchedulerNode
from tests.simulation.session import MODEL, Session, Setup
from tests.simulation.worker_node import WorkerNode
from tests.simulation.world import World
from worker_svc.core.batch import RunnerInfo

MAX_SECONDS = 400.0


@dataclass(frozen=True)
class Outcome:
    """What a scenario came to."""

    num_events: int
    num_requests: int
    num_attempts: int
    num_preemptions: int
    num_displacements: int
    num_hit_tokens: int
    num_host_hit_tokens: int
    num_fences: int
    num_disk_hit_tokens: int = 0
    num_disk_lost: int = 0


class Simulation:
    """A ring of these sizes, with the rules checked after every event; requests are planned by the caller."""

    def __init__(self, rng: random.Random, setup: Setup, config: SchedulerConfig) -> None:
        self.rng, self.setup, self.config = rng, setup, config
        self.faults = False
        self.num_planned = 0
        self.world = World(rng, after_event=self.check)
        self.scheduler = SchedulerNode(self.world, config)
        info = RunnerInfo(
            MODEL,
            setup.num_blocks,
            setup.block_size,
            setup.max_model_len,
            setup.vocab_size,
            (),
            setup.max_draft_tokens,
            num_host_blocks=setup.num_host_blocks,
            tasks=(ModelTask.GENERATE, ModelTask.EMBED),
            embedding_size=1,
            num_state_versions=setup.num_state_versions,
            state_group=setup.state_group,
            groups=setup.groups,
            num_lanes=setup.num_lanes,
        )
        self.workers = [
            WorkerNode(self.world, self.scheduler, f"worker-{i}", info, setup)
            for i in range(setup.num_workers)
        ]
        self.disk = SharedDisk(setup.disk, random.Random(rng.random())) if setup.disk else None
        for node in self.workers if self.disk else ():
            node.disk, node.peers = NodeDisk(self.disk, node), lambda: self.workers
        self.frontend = FrontendNode(self.world, self.scheduler, self.workers, setup)
        self.limit = min(info.max_model_len, info.num_blocks * info.block_size + 1)

    def plan(self, session: Session, at: float) -> Session:
        """A client sends this at that time."""
        self.num_planned += 1
        self.world.at(at, lambda: self.frontend.submit(session))
        return session

    # -- the rules --

    def check(self) -> None:
        """After every event: all invariants of whom it concerned, and the scheduler's counts against the workers'."""
        scheduler_changed, self.scheduler.dirty = self.scheduler.dirty, False
        if scheduler_changed:
            self.scheduler.core.check_integrity()
            for worker in self.scheduler.core.workers.values():
                check_scheduler(worker)
        for node in self.workers:
            changed, node.dirty = node.dirty, False
            if changed:
                node.core.table.check_integrity()
            if not changed and not scheduler_changed:
                continue
            attached = self.scheduler.worker_links.get(node.worker_id)
            if node.alive and attached is not None and attached is node.link and attached.open:
                check_lag(self.scheduler.core.workers[node.worker_id], node.core.table)
                check_fences(self.scheduler.core.workers[node.worker_id], node.open_fences)
                if node.disk is not None:
                    check_owned(self.scheduler.core.workers[node.worker_id], node.disk.open)

    def run(self) -> Outcome:
        """Runs to the end and checks what clients saw."""
        done = self.world.run(self._is_over, MAX_SECONDS)
        unfinished = [s.request_id for s in self.frontend.sessions if not s.is_done]
        assert done, f"stuck at {self.world.now:.1f} s with {unfinished}"
        self.world.run(self._is_quiet, self.world.now + 60)
        self._check_end()
        sessions = self.frontend.sessions
        stats = [worker.stats for worker in self.scheduler.core.workers.values()]
        return Outcome(
            num_events=self.world.num_events,
            num_requests=len(sessions),
            num_attempts=sum(session.num_attempts for session in sessions),
            num_preemptions=sum(s.num_preemptions for s in stats),
            num_displacements=sum(s.num_displacements for s in stats),
            num_hit_tokens=sum(s.num_prefix_hit_tokens for s in stats),
            num_host_hit_tokens=sum(s.num_host_hit_tokens for s in stats),
            num_fences=sum(s.num_fences for s in stats),
            num_disk_hit_tokens=sum(s.num_disk_hit_tokens for s in stats),
            num_disk_lost=self.disk.num_lost if self.disk else 0,
        )

    def _is_over(self) -> bool:
        sessions = self.frontend.sessions
        return (
            len(sessions) == self.num_planned
            and all(session.is_done for session in sessions)
            and self.world.now > 4
        )

    def _is_quiet(self) -> bool:
        workers = self.scheduler.core.workers.values()
        return (
            self.scheduler.alive
            and len(workers) == len(self.workers)
            and not self.scheduler.core.requests
            and all(w.attached and w.table.num_free_slots == w.table.num_slots for w in workers)
            and not any(w.fences or ((disk := disk_of(w)) is not None and disk.stores) for w in workers)
        )

    def _check_end(self) -> None:
        for session in self.frontend.sessions:
            assert len(session.ends) == 1, f"{session.request_id} ended {session.ends}"
            expected = session.expected(self.setup.vocab_size, self.limit)
            name = f"{session.request_id} ({session.ends[0]}, {session.num_attempts} attempts)"
            if session.ends[0] in ("FINISH_REASON_STOP", "FINISH_REASON_LENGTH"):
                assert session.output == expected, f"{name}: {session.output}, expected {expected}"
                assert session.vector == pytest.approx(session.expected_vector()), name
            else:
                assert session.output == expected[: len(session.output)], f"{name}: wrong tokens"
                assert (
                    session.ends[0] in ("cancelled", "stop string") or self.faults or session.has_grammar
                ), name
        assert self._is_quiet(), "slots or requests are left behind"
        for worker in self.scheduler.core.workers.values():
            for pool in worker.pools:
                assert pool.num_available == pool.num_blocks, "blocks are left behind"
            if worker.checkpoints is not None:
                pool = worker.checkpoints.pool
                assert pool.num_available == pool.num_blocks, "checkpoints are left behind"
        assert self.faults or self.scheduler.num_divergences == 0
        for node in self.workers:
            assert not node.alive or not np.any(node.core.table.status), "the worker keeps slots"
