"""Placement as a plain search through all workers: what `core/placement` has to choose too, at less cost (Q4, Q9)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from unittest import mock

from scheduler_svc.core.placement.choice import FEWER, Choice
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.affinity import Affinity
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.enums import WorkerRole


@dataclass
class Verdict:
    """A choice, and what placement keeps of the request from then on."""

    takes: bool
    affinity: Affinity


def decide(core: Scheduler, worker: Worker, request: Request, now: float) -> Verdict:
    """Whether `worker` takes `request`, which it can run."""
    affinity = copy(request.affinity)
    rivals = [other for other in core.workers.values() if other is not worker and other.takes_new]
    rivals = [other for other in rivals if other.info.model == worker.info.model and other.can_run(request)]
    may_take = core.admission.continuation.may_take
    rivals = [other for other in rivals if may_take(other, request, now)]
    if not request.is_pooling:
        able = [other for other in rivals if has_room(other, request, core.config)]
        if any(each.role is not WorkerRole.DECODE for each in (worker, *able)):
            if worker.role is WorkerRole.DECODE:
                return Verdict(False, affinity)
            rivals = [other for other in rivals if other.role is not WorkerRole.DECODE]
    if not rivals:
        return Verdict(True, affinity)
    preferred = preferred_by_prefix(worker, rivals, request, affinity, core.config, now)
    if preferred is not None:
        return Verdict(preferred is worker, affinity)
    return Verdict(not leaves_to_fewer(worker, rivals, request, affinity, core.config, now), affinity)


def leaves_to_fewer(
    worker: Worker,
    rivals: Iterable[Worker],
    request: Request,
    affinity: Affinity,
    config: SchedulerConfig,
    now: float,
) -> bool:
    """Others have fewer requests, and room: at once, or soon."""
    able = [other for other in rivals if has_room(other, request, config)]
    if any(other.load < worker.load and num_due(other) < other.limits.max_inflight_steps for other in able):
        return True
    if not any(other.load + FEWER <= worker.load for other in able):
        return False
    if affinity.balanced_until is None:
        affinity.balanced_until = now + config.balance_wait_ms / 1e3
    return now < affinity.balanced_until


def preferred_by_prefix(
    worker: Worker,
    rivals: Sequence[Worker],
    request: Request,
    affinity: Affinity,
    config: SchedulerConfig,
    now: float,
) -> Worker | None:
    """The worker that has most of the prompt cached, while it may be waited for."""
    if not request.block_hashes or not config.enable_prefix_caching or request.needs_every_position:
        return None
    workers = [worker, *rivals]
    if affinity.until is None:
        affinity.until = now + config.affinity_wait_ms / 1e3
        lengths = [num_cached(each, request) for each in workers]
        best = workers[lengths.index(max(lengths))]
        is_worth = max(lengths) - min(lengths) >= config.affinity_min_tokens
        affinity.worker_id = best.info.worker_id if is_worth else None
    if not affinity.holds(now):
        affinity.worker_id = None
        return None
    named = next((each for each in workers if each.info.worker_id == affinity.worker_id), None)
    affinity.num_times_left += named is not worker
    return named


def num_cached(worker: Worker, request: Request) -> int:
    """Tokens of the longest cached prefix."""
    return worker.pool.prefix_length(worker.names_of(request).hashes) * worker.info.block_size


def num_due(worker: Worker) -> int:
    return len([record for record in worker.records if not record.may_be_skipped])


def has_room(worker: Worker, request: Request, config: SchedulerConfig) -> bool:
    """It could start there now."""
    blocks = -(-request.num_known_tokens // worker.info.block_size)
    headroom = config.watermark_blocks_per_seq * worker.num_active
    return (
        (not request.has_grammar or worker.may_prepare)
        and worker.num_active < worker.limits.max_num_seqs
        and worker.table.num_free_slots > 0
        and not worker.table.has_waiting
        and blocks + headroom <= worker.pool.num_available
    )


@dataclass
class Comparison:
    """While it is open, every choice of a scheduler is made both ways, and has to be the same."""

    core: Scheduler
    num_taken: int = 0
    num_left: int = 0
    named: set[str | None] = field(default_factory=set)
    """Workers that requests were left for because of their prefix."""

    def __enter__(self) -> Comparison:
        real = Choice._should_take

        def should_take(choice: Choice, request: Request) -> bool:
            verdict = decide(self.core, choice._worker, request, choice._now)
            takes = real(choice, request)
            assert Verdict(takes, request.affinity) == verdict, request.key
            self.num_taken, self.num_left = self.num_taken + takes, self.num_left + (not takes)
            self.named.add(request.affinity.worker_id)
            return takes

        self._patch = mock.patch.object(Choice, "_should_take", should_take)
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()
