"""A scenario drawn from a seed, run to its end, with every rule of the design checked after every event."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from scheduler_svc.core.config import SchedulerConfig
from tests.simulation.nodes import FrontendNode, SchedulerNode, Session, Setup, WorkerNode
from tests.simulation.reference import check_lag, check_scheduler
from tests.simulation.world import World
from worker_svc.core.batch import RunnerInfo

MAX_SECONDS = 400.0
MODEL = "sim"


@dataclass(frozen=True)
class Outcome:
    """What a scenario came to."""

    num_events: int
    num_requests: int
    num_attempts: int
    num_preemptions: int
    num_hit_tokens: int
    num_host_hit_tokens: int


class Scenario:
    """One simulated run. `inflight` and `drafts` are fixed by the caller, all else by the seed."""

    def __init__(
        self, seed: int, inflight: int, drafts: int, faults: bool = True, vocab_size: int | None = None
    ) -> None:
        self.rng = random.Random(seed * 1000 + inflight * 10 + drafts)
        rng = self.rng
        self.faults = faults and rng.random() < 0.6
        self.setup = Setup(
            num_workers=rng.choice((1, 1, 2)),
            num_blocks=rng.choice((12, 16, 24, 48)),
            block_size=rng.choice((2, 4)),
            num_slots=rng.choice((6, 12)),
            max_model_len=64,
            vocab_size=vocab_size or rng.choice((50, 1000)),
            max_draft_tokens=drafts,
            acceptance=rng.choice((0.0, 0.6, 1.0)),
            num_host_blocks=rng.choice((0, 0, 4, 40)),
        )
        seqs = rng.choice((2, 4, 6))
        self.config = SchedulerConfig(
            max_num_seqs=seqs,
            max_num_batched_tokens=rng.choice((seqs * (1 + drafts), 16 + seqs * (1 + drafts), 200)),
            long_prefill_token_threshold=rng.choice((0, 0, 5)),
            max_inflight_steps=inflight,
            num_speculative_tokens=drafts,
            watermark_blocks_per_seq=rng.choice((0, 1, 2)),
            enable_prefix_caching=rng.random() < 0.85,
            worker_grace_s=2.0,
            no_worker_grace_s=5.0,
            frontend_grace_s=3.0,
            start_grace_s=1.0,
        )
        self.world = World(rng, after_event=self.check)
        self.scheduler = SchedulerNode(self.world, self.config)
        info = RunnerInfo(
            MODEL,
            self.setup.num_blocks,
            self.setup.block_size,
            self.setup.max_model_len,
            self.setup.vocab_size,
            (),
            drafts,
            num_host_blocks=self.setup.num_host_blocks,
        )
        self.workers = [
            WorkerNode(self.world, self.scheduler, f"worker-{i}", info, self.setup)
            for i in range(self.setup.num_workers)
        ]
        self.frontend = FrontendNode(self.world, self.scheduler, self.workers, self.setup)
        self.limit = min(info.max_model_len, info.num_blocks * info.block_size + 1)
        self._plan_requests()
        if self.faults:
            self._plan_faults()

    # -- the plot --

    def _plan_requests(self) -> None:
        rng = self.rng
        self.num_planned = rng.randrange(4, 16)
        prefixes = [[rng.randrange(self.setup.vocab_size) for _ in range(24)] for _ in range(2)]
        for number in range(self.num_planned):
            shared = rng.choice(prefixes)[: rng.randrange(0, 25)]
            own = [rng.randrange(self.setup.vocab_size) for _ in range(rng.randrange(1, 16))]
            prompt = (shared + own)[: self.limit - 1]
            session = Session(
                request_id=f"r{number if rng.random() < 0.8 else max(number - 1, 0)}",
                prompt=prompt,
                max_tokens=rng.randrange(1, 30),
                stop_token_ids=[rng.randrange(self.setup.vocab_size) for _ in range(rng.choice((0, 0, 5)))],
                stop_after=rng.randrange(1, 20) if rng.random() < 0.1 else None,
            )
            self.world.at(1.5 + rng.uniform(0, 1.0), lambda session=session: self._submit(session))  # type: ignore[misc]

    def _submit(self, session: Session) -> None:
        """A client never names two running requests alike: an older one of the same name is cancelled just before."""
        rng = self.rng
        for other in self.frontend.sessions:
            if other.request_id == session.request_id and not other.is_done:
                self.frontend.cancel(other)
        self.frontend.submit(session)
        if rng.random() < 0.2:
            self.world.at(rng.uniform(0, 0.5), lambda: self.frontend.cancel(session))
        if rng.random() < 0.15:
            self.world.at(rng.uniform(0, 0.3), lambda: self.frontend.set_paused(session, True))
            self.world.at(rng.uniform(0.3, 1.0), lambda: self.frontend.set_paused(session, False))

    def _plan_faults(self) -> None:
        rng = self.rng
        for _ in range(rng.randrange(1, 5)):
            fault = rng.choice(
                (
                    self._break_worker,
                    self._break_frontend,
                    self._break_outputs,
                    self._kill_worker,
                    self._kill_scheduler,
                )
            )
            self.world.at(1.5 + rng.uniform(0.0, 1.5), fault)

    def _break_worker(self) -> None:
        link = self.rng.choice(self.workers).link
        if link is not None:
            link.break_()

    def _break_frontend(self) -> None:
        if self.frontend.link is not None:
            self.frontend.link.break_()

    def _break_outputs(self) -> None:
        for link in list(self.frontend.output_links.values()):
            link.break_()

    def _kill_worker(self) -> None:
        worker = self.rng.choice(self.workers)
        if worker.alive:
            worker.kill()
            self.world.at(self.rng.uniform(0.01, 1.0), worker.restart)

    def _kill_scheduler(self) -> None:
        if self.scheduler.alive:
            self.scheduler.kill()
            self.world.at(self.rng.uniform(0.01, 1.0), self.scheduler.restart)

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
            num_hit_tokens=sum(s.num_prefix_hit_tokens for s in stats),
            num_host_hit_tokens=sum(s.num_host_hit_tokens for s in stats),
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
        )

    def _check_end(self) -> None:
        for session in self.frontend.sessions:
            assert len(session.ends) == 1, f"{session.request_id} ended {session.ends}"
            expected = session.expected(self.setup.vocab_size, self.limit)
            name = f"{session.request_id} ({session.ends[0]}, {session.num_attempts} attempts)"
            if session.ends[0] in ("FINISH_REASON_STOP", "FINISH_REASON_LENGTH"):
                assert session.output == expected, f"{name}: {session.output}, expected {expected}"
            else:
                assert session.output == expected[: len(session.output)], f"{name}: wrong tokens"
                assert session.ends[0] in ("cancelled", "stop string") or self.faults, name
        assert self._is_quiet(), "slots or requests are left behind"
        for worker in self.scheduler.core.workers.values():
            assert worker.pool.num_available == worker.pool.num_blocks, "blocks are left behind"
        assert self.faults or self.scheduler.num_divergences == 0
        for node in self.workers:
            assert not node.alive or not np.any(node.core.table.status), "the worker keeps slots"
