"""Which worker takes which waiting request: where its prefix is cached, else where the fewest run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from scheduler_svc.core.admission.continuation import Continuation
from scheduler_svc.core.config import SchedulerConfig
from scheduler_svc.core.request import Request
from scheduler_svc.core.roles.prompts import has_roles, rivals_for_prompt
from scheduler_svc.core.slots.worker import Worker
from scheduler_svc.core.step.bursts import num_due

LOOKAHEAD = 8
"""Waiting requests that a worker may leave to others before it looks no further: bounds the work of a step."""
FEWER = 2
"""Requests that a worker has to have fewer to be waited for."""


def candidates(
    worker: Worker,
    others: Sequence[Worker],
    waiting: Iterable[Request],
    config: SchedulerConfig,
    now: float,
    continuation: Continuation,
) -> Iterator[Request]:
    """The waiting requests that `worker`, whose step is being built, should take, in order. After
    `LOOKAHEAD` requests that it leaves to others it looks no further."""
    left = 0
    by_roles = has_roles(worker, others)
    for request in waiting:
        if not worker.can_run(request) or not continuation.may_take(worker, request, now):
            continue
        rivals: Sequence[Worker] | None = others
        if request.output_identity:
            rivals = [other for other in others if continuation.may_take(other, request, now)]
        if by_roles and not request.is_pooling:
            rivals = _by_roles(worker, rivals or (), request, config)
            if rivals is None:
                left += 1
                if left >= LOOKAHEAD:
                    return
                continue
        if not rivals or _should_take(worker, rivals, request, config, now):
            yield request
            continue
        left += 1
        if left >= LOOKAHEAD:
            return


def _by_roles(
    worker: Worker, others: Sequence[Worker], request: Request, config: SchedulerConfig
) -> Sequence[Worker] | None:
    """As `rivals_for_prompt`; `worker`, which is asked, counts as one that has room."""
    able = [other for other in others if other.can_run(request) and _has_room(other, request, config)]
    return rivals_for_prompt(worker, others, [worker, *able])


def _should_take(
    worker: Worker, others: Sequence[Worker], request: Request, config: SchedulerConfig, now: float
) -> bool:
    preferred = _preferred(worker, others, request, config, now)
    if preferred is not None:
        return preferred is worker
    return not any(
        other.load < worker.load
        and other.attached
        and other.can_run(request)
        and (
            num_due(other) < other.limits.max_inflight_steps
            or _waits_for(other, worker, request, config, now)
        )
        and _has_room(other, request, config)
        for other in others
    )


def _waits_for(other: Worker, worker: Worker, request: Request, config: SchedulerConfig, now: float) -> bool:
    """The other one has steps enough in flight, and so many fewer requests that it is waited for, for a short time:
    else whoever is asked first takes all that comes at once."""
    if not other.is_well or other.load + FEWER > worker.load:
        return False
    affinity = request.affinity
    if affinity.balanced_until is None:
        affinity.balanced_until = now + config.balance_wait_ms / 1e3
    return now < affinity.balanced_until


def _preferred(
    worker: Worker, others: Sequence[Worker], request: Request, config: SchedulerConfig, now: float
) -> Worker | None:
    """The worker that has most of the prompt cached, while waiting for it is still worth while. The search is made
    once per request: what is cached changes, but a request does not wait long for it."""
    if not request.block_hashes or not config.enable_prefix_caching or request.needs_every_position:
        return None
    affinity = request.affinity
    if affinity.until is None:
        affinity.until = now + config.affinity_wait_ms / 1e3
        affinity.worker_id = _best_prefix([worker, *others], request, config)
    if not affinity.holds(now):
        affinity.worker_id = None
        return None
    best = next((w for w in (worker, *others) if w.info.worker_id == affinity.worker_id and w.attached), None)
    affinity.num_times_left += best is not worker
    return best


def _best_prefix(workers: Sequence[Worker], request: Request, config: SchedulerConfig) -> str | None:
    """The worker with the longest cached prefix, if it saves enough against the others."""
    lengths = {
        w.info.worker_id: w.pool.prefix_length(w.names_of(request).hashes) * w.info.block_size
        for w in workers
        if w.can_run(request)
    }
    best = max(lengths, key=lambda worker_id: lengths[worker_id])
    return best if lengths[best] - min(lengths.values()) >= config.affinity_min_tokens else None


def _has_room(worker: Worker, request: Request, config: SchedulerConfig) -> bool:
    blocks = -(-request.num_known_tokens // worker.info.block_size)
    if request.has_grammar and not worker.may_prepare:
        return False
    headroom = config.watermark_blocks_per_seq * worker.num_active
    return (
        worker.num_active < worker.limits.max_num_seqs
        and worker.table.num_free_slots > 0
        and not worker.table.has_waiting
        and blocks + headroom <= worker.pool.num_available
    )
