"""What `/metrics` of the worker tells: read from the state when somebody scrapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from prometheus_client.core import Metric

from signalbox.telemetry import attributes as names
from signalbox.telemetry.metrics_server import counter, gauge, span_counts
from signalbox.telemetry.spans import SpanCounts
from worker_svc.core.batch import RankTimes, WarmUp
from worker_svc.core.drafts.drafting import DraftTotals
from worker_svc.core.requests.request_state import RequestTable, SlotStatus
from worker_svc.disk.tier import DiskTier
from worker_svc.links.outputs import Outputs
from worker_svc.steps.loop import StepLoop

_STATES = {
    "free": SlotStatus.FREE,
    "preparing": SlotStatus.PREPARING,
    "prefill": SlotStatus.PREFILL,
    "decode": SlotStatus.DECODE,
    "preempted": SlotStatus.PREEMPTED,
    "ended": SlotStatus.ENDED,
    "imported": SlotStatus.IMPORTED,
    "frozen": SlotStatus.FROZEN,
    "importing": SlotStatus.IMPORTING,
}


def read(
    steps: StepLoop,
    table: RequestTable,
    drafts: DraftTotals,
    outputs: Outputs,
    is_attached: bool,
    spans: SpanCounts,
    disk: DiskTier | None = None,
    ranks: Sequence[RankTimes] = (),
    warm_up: WarmUp | None = None,
    graph_failures: Mapping[tuple[str, str], int] | None = None,
) -> Iterator[Metric]:
    """The state as it is now. The step thread may be at work: numbers of one scrape may be a step apart."""
    totals = steps.totals
    drafted, accepted = drafts.num_drafted, drafts.num_accepted
    parts = {
        "queued": totals.queued_us,
        "prepare": totals.prepare_us,
        "execute": totals.execute_us,
        "commit": totals.commit_us,
        "masks": totals.masks_us,
    }
    yield counter(names.METRIC_WORKER_STEPS, "Steps run.", [({}, totals.num_steps)])
    yield counter(
        names.METRIC_WORKER_OWN_STEPS, "Of them, those without a scheduler.", [({}, totals.num_own)]
    )
    yield counter(
        names.METRIC_WORKER_STEP_SECONDS,
        "Time of steps by part; queued is the wait for the steps before it.",
        [({"part": part}, microseconds / 1e6) for part, microseconds in parts.items()],
    )
    yield counter(
        names.METRIC_WORKER_DRAFT_TOKENS,
        "Draft tokens that the model looked at.",
        [({"result": "accepted"}, accepted), ({"result": "rejected"}, drafted - accepted)],
    )
    yield gauge(names.METRIC_WORKER_STEP_AGE, "Age of the step that runs now.", [({}, steps.step_age_s)])
    counts = np.bincount(table.status, minlength=len(_STATES))
    slots = [({"state": name}, int(counts[state])) for name, state in _STATES.items()]
    yield gauge(names.METRIC_WORKER_SLOTS, "Slots by what they do.", slots)
    yield gauge(names.METRIC_WORKER_LINKED, "Whether the scheduler's link is up.", [({}, is_attached)])
    yield gauge(names.METRIC_WORKER_ALONE, "Whether it goes on without a scheduler.", [({}, steps.is_alone)])
    yield from _of_disk(disk) if disk is not None else ()
    yield _of_ranks(ranks)
    yield from of_warm_up(warm_up) if warm_up is not None else ()
    yield from (of_graphs(graph_failures),) if graph_failures else ()
    num_logs, num_messages, num_bytes = outputs.unread()
    yield gauge(names.METRIC_OUTBOUND_LOGS, "Frontends with a log of outputs.", [({}, num_logs)])
    yield gauge(
        names.METRIC_OUTBOUND_MESSAGES, "Outputs not acknowledged by frontends.", [({}, num_messages)]
    )
    yield gauge(names.METRIC_OUTBOUND_BYTES, "Bytes of these.", [({}, num_bytes)])
    yield span_counts(spans)


def _of_ranks(ranks: Sequence[RankTimes]) -> Metric:
    """Where the time of each process went, of a model that is divided among them."""
    parts = [
        ({"rank": str(rank), "part": part}, getattr(times, part))
        for rank, times in enumerate(ranks)
        for part in ("compute", "collectives", *(() if rank else ("answers",)))
    ]
    return counter(
        names.METRIC_WORKER_RANK_SECONDS,
        "Time of steps by rank and part; answers is rank 0's wait for the others behind its own part.",
        parts,
    )


def of_warm_up(warm_up: WarmUp) -> Iterator[Metric]:
    """What was run before the worker was ready."""
    yield gauge(
        names.METRIC_WORKER_WARM_UP,
        "Time of the warm-up: graphs captured and kernels compiled before the worker was ready.",
        [({}, warm_up.seconds)],
    )
    yield counter(
        names.METRIC_WORKER_LATE_COMPILES,
        "Kernel variants that were compiled while serving: a step waited for each.",
        [({}, warm_up.num_late_compiles)],
    )


def of_graphs(failures: Mapping[tuple[str, str], int]) -> Metric:
    """How often a graph failed, by what failed and reason."""
    return counter(
        names.METRIC_WORKER_GRAPH_FAILURES,
        "CUDA graphs of decode steps that could not be captured, or not be replayed; such steps run without.",
        [({"what": what, "reason": reason}, count) for (what, reason), count in failures.items()],
    )


def _of_disk(disk: DiskTier) -> Iterator[Metric]:
    counts, writer = disk.counts, disk.writer
    blocks = {
        "loaded": counts.num_loaded,
        "lost": counts.num_lost,
        "stored": writer.num_written,
        "dropped": writer.num_dropped,
    }
    yield counter(
        names.METRIC_WORKER_DISK_BLOCKS,
        "Blocks of the disk tier by what became of them; lost ones were to be loaded, dropped ones to be stored.",
        [({"result": name}, count) for name, count in blocks.items()],
    )
    failures = {"read": disk.num_read_failures, "write": writer.breaker.num_failures}
    yield counter(
        names.METRIC_WORKER_DISK_FAILURES,
        "Failures of the disk.",
        [({"what": name}, count) for name, count in failures.items()],
    )
    yield gauge(
        names.METRIC_WORKER_DISK_BYTES, "Bytes of the disk tier, by the last look.", [({}, disk.num_bytes)]
    )
    yield gauge(
        names.METRIC_WORKER_DISK_LEFT_OUT,
        "Entries of the directory that cannot be read, or not be deleted.",
        [({}, disk.num_left_out)],
    )
    yield gauge(
        names.METRIC_WORKER_DISK_OFF, "Whether the disk is left alone for a while.", [({}, disk.is_off)]
    )
