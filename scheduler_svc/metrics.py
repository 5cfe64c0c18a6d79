"""What `/metrics` of the scheduler tells: read from the state when somebody scrapes, counted nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

from scheduler_svc.core.cluster.identities import identities_of
from scheduler_svc.core.parts.disk.part import disk_of
from scheduler_svc.core.state.blocks.block_pool import BlockPool
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.state.worker_stats import WorkerStats
from scheduler_svc.step_loop import StepLoop
from signalbox.protocol.block_groups import SPINE
from signalbox.protocol.enums import WorkerHealth
from signalbox.telemetry import attributes as names
from signalbox.telemetry.metrics_server import Labels, counter, gauge, span_counts
from signalbox.telemetry.spans import SpanCounts

_GAUGES: tuple[tuple[str, str, Callable[[Worker], float]], ...] = (
    (
        names.METRIC_WORKER_ATTACHED,
        "Whether the worker has a link (1) or is waited for (0).",
        lambda w: w.attached,
    ),
    (
        names.METRIC_WORKER_SUSPECT,
        "Whether the worker gets nothing new (1) because it is silent, hangs or is slow.",
        lambda w: w.attached and w.health is not WorkerHealth.GOOD,
    ),
    (
        names.METRIC_LENT_BLOCKS,
        "Blocks that it may use while it has no scheduler.",
        lambda w: w.loan.num_left(w.pool),
    ),
    (names.METRIC_RUNNING, "Requests that hold blocks.", lambda w: w.table.num_running),
    (names.METRIC_PREEMPTED, "Requests whose blocks were taken.", lambda w: len(w.table.preempted)),
    (names.METRIC_DISPLACED, "Requests that gave their place to others.", lambda w: len(w.table.displaced)),
    (names.METRIC_BLOCKS_TOTAL, "KV blocks.", lambda w: w.pool.num_blocks),
    (names.METRIC_HOST_BLOCKS, "Blocks of the host tier with content.", lambda w: len(w.host)),
    (names.METRIC_STEPS_IN_FLIGHT, "Steps sent and not reported.", lambda w: len(w.records)),
)
_COUNTERS: tuple[tuple[str, str, Callable[[WorkerStats], float]], ...] = (
    (names.METRIC_STEPS, "Steps sent.", lambda s: s.num_steps),
    (names.METRIC_STEP_EXECUTE, "Time that steps spent in the model.", lambda s: s.execute_us / 1e6),
    (names.METRIC_SCHEDULED_OUTPUT_TOKENS, "Output tokens reported.", lambda s: s.num_output_tokens),
    (names.METRIC_PREFILL_TOKENS, "Prompt tokens computed.", lambda s: s.num_prefill_tokens),
    (
        names.METRIC_PREFIX_QUERIES,
        "Tokens looked up in the prefix cache.",
        lambda s: s.num_prefix_query_tokens,
    ),
    (names.METRIC_PREFIX_HITS, "Tokens found there, host tier included.", lambda s: s.num_prefix_hit_tokens),
    (names.METRIC_HOST_HITS, "Tokens found in the host tier.", lambda s: s.num_host_hit_tokens),
    (names.METRIC_DISK_HITS, "Prompt tokens of blocks loaded from disk.", lambda s: s.num_disk_hit_tokens),
    (names.METRIC_PREEMPTIONS, "Preemptions.", lambda s: s.num_preemptions),
    (names.METRIC_DISPLACEMENTS, "Places taken for others.", lambda s: s.num_displacements),
    (names.METRIC_BLOCK_COPIES, "Block copies between device and host tier.", lambda s: s.num_block_copies),
)


def read_leads(leads: bool) -> Iterator[Metric]:
    """All that a standby tells."""
    yield gauge(names.METRIC_LEADS, "Whether this scheduler leads (1) or stands by (0).", [({}, leads)])


def read(loop: StepLoop, spans: SpanCounts) -> Iterator[Metric]:
    """The state as it is now. Counters of a worker begin anew when it attaches."""
    workers = [(_labels(worker), worker) for worker in loop.core.workers.values()]
    yield gauge(names.METRIC_WAITING, "Requests that no worker owns.", [({}, loop.core.num_waiting)])
    yield gauge(
        names.METRIC_WAITING_TOKENS,
        "Tokens of requests that no worker owns, without what is cached: what has to be computed.",
        [({}, loop.core.queues.num_uncached_tokens())],
    )
    yield gauge(names.METRIC_FRONTENDS, "Frontends with a link.", [({}, loop.num_frontends)])
    yield gauge(
        names.METRIC_FAIRNESS_GAP,
        "Virtual tokens between the tenants of a class that wait, at most.",
        [({}, loop.core.queues.gap())],
    )
    yield counter(
        names.METRIC_MASK_SECONDS,
        "CPU time of workers on the masks of outputs that follow a form, by tenant.",
        [({names.LABEL_TENANT: name}, s) for name, s in loop.core.queues.mask_seconds.by_tenant.items()],
    )
    yield counter(
        names.METRIC_TTFT_DEADLINES,
        "Requests of priorities with a target, by whether their first token came in time.",
        _deadlines(loop),
    )
    yield counter(
        names.METRIC_LINK_TROUBLES,
        "Links of workers that failed through no fault of the network: refused hellos, reports out of step.",
        [({"worker_id": worker_id}, count) for worker_id, count in loop.troubles.counts.items()],
    )
    yield counter(
        names.METRIC_VIOLATIONS,
        "Contradictions that were found while idle, by worker; those of the list of requests without one.",
        [({"worker_id": worker_id}, count) for worker_id, count in loop.idle_check.counts.items()],
    )
    identities = identities_of(loop.core.workers.values())
    yield gauge(
        names.METRIC_IDENTITIES,
        "Identities that the workers of a model have: weights, their form, the class of kernels.",
        [({"model": model}, len(found)) for model, found in identities.items()],
    )
    yield from _safe_mode(loop)
    yield from _handoffs(loop)
    yield from _pulls(loop)
    for name, documentation, value in _GAUGES:
        yield gauge(name, documentation, [(labels, value(worker)) for labels, worker in workers])
    blocks = [sample for labels, worker in workers for sample in _blocks(labels, worker)]
    yield gauge(names.METRIC_BLOCKS, "KV blocks by state.", blocks)
    others = [sample for labels, worker in workers for sample in _group_blocks(labels, worker)]
    yield gauge(
        names.METRIC_GROUP_BLOCKS,
        "Blocks of layers that look back so far and no farther, and checkpoints of recurrent states, by state.",
        others,
    )
    hosts = [sample for labels, worker in workers for sample in _group_host_blocks(labels, worker)]
    yield gauge(names.METRIC_GROUP_HOST_BLOCKS, "The same in the host tier, those that are taken.", hosts)
    on_disk = [
        (labels, sum(map(len, disk.contents)))
        for labels, worker in workers
        if (disk := disk_of(worker)) is not None
    ]
    yield gauge(names.METRIC_DISK_BLOCKS, "Blocks that could be loaded from disk, of all groups.", on_disk)
    made = [sample for labels, worker in workers for sample in _checkpoints(labels, worker)]
    yield counter(names.METRIC_CHECKPOINTS, "Checkpoints of recurrent states, by what became of them.", made)
    for name, documentation, total in _COUNTERS:
        yield counter(name, documentation, [(labels, total(worker.stats)) for labels, worker in workers])
    yield span_counts(spans)


def _deadlines(loop: StepLoop) -> Iterator[tuple[Labels, float]]:
    deadlines = loop.core.queues.deadlines
    for priority in sorted(deadlines.targets):
        labels = {"priority": str(priority)}
        yield labels | {"result": "met"}, deadlines.met[priority]
        yield labels | {"result": "missed"}, deadlines.missed[priority]


def _safe_mode(loop: StepLoop) -> Iterator[Metric]:
    mode = loop.safe_mode()
    by_whom = [({"asked_by": who}, mode.HasField(f"{who}_level")) for who in ("operator", "budget")]
    yield gauge(names.METRIC_SAFE_MODE, "Whether classes are suspended (1), by who asked for it.", by_whom)
    counts = [({"state": "waiting"}, mode.num_waiting), ({"state": "paused"}, mode.num_paused)]
    yield gauge(names.METRIC_SUSPENDED, "Requests of suspended classes.", counts)
    if mode.HasField("burn_rate"):
        yield gauge(
            names.METRIC_BURN_RATE,
            "How fast late first tokens use up the error budget.",
            [({}, mode.burn_rate)],
        )


def _handoffs(loop: StepLoop) -> Iterator[Metric]:
    counts = loop.core.handoffs.counts
    by_event = [({"event": "begun"}, counts.num_begun), ({"event": "committed"}, counts.num_committed)]
    yield counter(
        names.METRIC_HANDOFFS, "Requests handed over between workers, by how far it came.", by_event
    )
    by_role: list[tuple[Labels, float]] = [({}, counts.num_by_role)]
    yield counter(names.METRIC_ROLE_HANDOFFS, "Of these begun, those to where others decode.", by_role)
    roles = [(_labels(w) | {"role": w.role.name.lower()}, 1) for w in loop.core.workers.values()]
    yield gauge(names.METRIC_WORKER_ROLE, "What a worker is there for.", roles)
    failures = [({"reason": reason}, count) for reason, count in counts.failed.items()]
    yield counter(names.METRIC_HANDOFF_FAILURES, "Hand-offs that failed, by reason.", failures)
    blocks: list[tuple[Labels, float]] = [({}, counts.num_blocks)]
    yield counter(names.METRIC_HANDOFF_BLOCKS, "Blocks of requests that were handed over.", blocks)
    frozen: list[tuple[Labels, float]] = [({}, counts.frozen_s)]
    yield counter(
        names.METRIC_HANDOFF_FROZEN, "Time for which nobody ran requests that were handed over.", frozen
    )


def _pulls(loop: StepLoop) -> Iterator[Metric]:
    pulls = loop.core.handoffs.pulls
    out = [("hand_off", each) for each in loop.core.handoffs.pairs.left_out()]
    out += [("pull", each) for each in pulls.pairs.left_out()]
    pairs = [({"source": e.source_id, "target": e.target_id, "what": what}, 1.0) for what, e in out]
    yield gauge(
        names.METRIC_PAIR_LEFT_OUT,
        "Whether a worker is not asked to read from another, as it could not.",
        pairs,
    )
    counts = pulls.counts
    results: list[tuple[Labels, float]] = [({"result": "read"}, counts.num_ended)]
    results += [({"result": f"failed_{reason}"}, count) for reason, count in counts.failed.items()]
    yield counter(
        names.METRIC_PULLS,
        "Times that a worker read cached blocks from another, by what came of it.",
        results,
    )
    blocks: list[tuple[Labels, float]] = [({}, counts.num_blocks)]
    yield counter(names.METRIC_PULLED_BLOCKS, "Blocks that came so, of all groups.", blocks)
    tokens: list[tuple[Labels, float]] = [({}, counts.num_tokens)]
    yield counter(names.METRIC_PULL_HITS, "Prompt tokens of these.", tokens)


def _labels(worker: Worker) -> Labels:
    return {"worker_id": worker.info.worker_id, "model": worker.info.model}


def _blocks(labels: Labels, worker: Worker) -> Iterator[tuple[Labels, float]]:
    for state, count in _states(worker.pool):
        yield labels | {"state": state}, count


def _group_blocks(labels: Labels, worker: Worker) -> Iterator[tuple[Labels, float]]:
    for window in worker.windows:
        of_group = labels | {"group": str(window.number), "reach": str(window.group.reach)}
        for state, count in _states(window.pool):
            yield of_group | {"state": state}, count
    if worker.checkpoints is not None:
        of_states = labels | {"group": "states", "reach": str(worker.checkpoints.group.boundary)}
        for state, count in _states(worker.checkpoints.pool):
            yield of_states | {"state": state}, count


def _group_host_blocks(labels: Labels, worker: Worker) -> Iterator[tuple[Labels, float]]:
    for window, host in zip(worker.windows, worker.hosts[SPINE + 1 :], strict=False):
        if host.num_blocks:
            yield labels | {"group": str(window.number), "reach": str(window.group.reach)}, len(host)
    if worker.checkpoints is not None and worker.hosts[-1].num_blocks:
        boundary = str(worker.checkpoints.group.boundary)
        yield labels | {"group": "states", "reach": boundary}, len(worker.hosts[-1])


def _checkpoints(labels: Labels, worker: Worker) -> Iterator[tuple[Labels, float]]:
    if worker.checkpoints is not None:
        counts = worker.checkpoints.counts
        yield labels | {"event": "made"}, counts.num_made
        yield labels | {"event": "used"}, counts.num_used
        yield labels | {"event": "evicted"}, counts.num_evicted


def _states(pool: BlockPool) -> Iterator[tuple[str, int]]:
    counts = {"free": pool.num_free, "cached": pool.num_cached, "fenced": pool.num_fenced}
    yield from counts.items()
    yield "held", pool.num_blocks - sum(counts.values())
