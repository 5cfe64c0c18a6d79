"""Finds what a worker can read from another one's cache instead of computing it, begins that, and ends it (PB)."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import nlargest

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.cluster.pairs import Pair, PairTroubles
from scheduler_svc.core.parts.disk.worth import most_load_us
from scheduler_svc.core.parts.fetch.longer_prefix import (
    begin_fence,
    bring_aside,
    find_longer,
    has_room,
    may_be_longer,
    stop_waiting,
)
from scheduler_svc.core.parts.fetch.side_copies import end_fence
from scheduler_svc.core.parts.handoff.eligibility import same_layout
from scheduler_svc.core.parts.pulls.part import PULLS, PullsPart, must_pull, pulls_of
from scheduler_svc.core.parts.pulls.plan import PullPlan
from scheduler_svc.core.parts.pulls.pull import PullOf
from scheduler_svc.core.state.blocks.block_pool import BlockPool, Blocks, Hashes
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.groups.prefix import Prefix
from scheduler_svc.core.state.requests.evidence import Process
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.steps.step import StepDecision
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.enums import ReadFault, WorkerHealth

Pull = PullOf[Worker]
KEY_BYTES = 16
MAX_SOURCES = 2
"""Workers of those that have more of a prompt that are looked at whole."""
SHOWN_SHARE = 4
"""A pull may hold one block in so many of those that its source has to spare then."""


@dataclass
class PullCounts:
    """What became of pulls, since the scheduler's process began."""

    num_begun: int = 0
    num_ended: int = 0
    num_blocks: int = 0
    """Blocks of all groups that came."""
    num_tokens: int = 0
    """Tokens that were not computed thanks to them."""
    failed: Counter[str] = field(default_factory=Counter)
    """By reason: a few fixed words."""


class PullDesk:
    """All pulls between the workers of one scheduler. `now` as everywhere."""

    def __init__(
        self,
        config: SchedulerConfig,
        workers: Mapping[str, Worker],
        make_key: Callable[[], bytes] = lambda: secrets.token_bytes(KEY_BYTES),
    ) -> None:
        self._workers, self._make_key = workers, make_key
        self._config = config
        self._is_on = config.pull_prefixes and config.enable_prefix_caching
        self._last_number = 0
        self._open: dict[int, Pull] = {}
        self._woken: list[str] = []
        self.counts = PullCounts()
        self.pairs = PairTroubles("no cached blocks are read there")

    def attached(self, worker: Worker) -> None:
        """A worker has said hello: it may pull, if it can."""
        if self._is_on and _can_pull(worker):
            worker.parts.add(PullsPart(worker, self))

    def with_woken(self, worker_ids: Iterable[str]) -> Iterator[str]:
        """The workers named, and then the sources that have something to be told, as long as there are any."""
        yield from worker_ids
        while self._woken:
            yield self._woken.pop()

    # -- begin --

    def find(self, worker: Worker, request: Request, prefix: Prefix, now: float) -> PullPlan | None:
        """What `Puller` says: from whoever has the longest part of the prompt, if that is sooner than computing it."""
        if not may_be_longer(worker, request, prefix):
            return None
        found = [
            (longer, source)
            for source in self._sources(worker, prefix, now)
            if (longer := find_longer(worker, prefix, partial(_has, source))) is not None
        ]
        if not found:
            return None
        longer, source = max(found, key=lambda each: each[0].num_blocks)
        pace = must_pull(worker).pace.of(source.info.worker_id, now)
        num_tokens = (longer.num_blocks - prefix.num_blocks) * worker.table.block_size
        if num_tokens < self._config.affinity_min_tokens:
            return None
        most_us = most_load_us(pace, longer.counts, num_tokens, self._ahead_us(worker))
        if not most_us or not has_room(worker, request, longer.groups):
            return None
        names = [group.names for group in longer.groups]
        if not _may_show(source, [_blocks_of(source, *each) for each in enumerate(names)]):
            return None
        load_us = max(pace.load_us(longer.counts), 1.0)
        return PullPlan(source.info.worker_id, longer, num_tokens, load_us, most_us)

    def _sources(self, worker: Worker, prefix: Prefix, now: float) -> list[Worker]:
        """Who has the first block that is missing in `prefix`, and most of what follows it; at most MAX_SOURCES. With
        other groups that block may be missing in one of those alone: then all that show theirs count."""
        hashes = prefix.hashes
        missing = hashes[prefix.num_blocks].tobytes()
        having = [
            source
            for source in self._workers.values()
            if (worker.windows or source.pool.has(missing))
            and _shows_to(source, worker)
            and self._may_try(source, worker, now)
        ]
        if len(having) <= MAX_SOURCES:
            return having
        names = hashes.tobytes()
        return nlargest(MAX_SOURCES, having, key=lambda source: source.pool.prefix_length(names))

    def begin(
        self,
        worker: Worker,
        request: Request,
        plan: PullPlan,
        needs: Sequence[int],
        step: StepDecision,
        now: float,
    ) -> None:
        """What `Puller` says: `request` waits for it, and the source's blocks are held."""
        source, groups = self._workers[plan.source_id], plan.longer.groups
        shown = [_blocks_of(source, number, group.names) for number, group in enumerate(groups)]
        for pool, blocks in zip(source.pools, shown, strict=True):
            pool.hold(blocks)
        written = bring_aside(worker, request, groups, needs, step, PULLS)
        self._last_number += 1
        number, key = self._last_number, self._make_key()
        pull = Pull(number, key, source, worker, step.step_id, shown, written, plan.num_tokens, now)
        fence = begin_fence(worker, step, PULLS)
        fence.pull, fence.load_us, fence.most_us = pull, plan.load_us, plan.most_us
        must_pull(source).show(pull)
        self._open[number] = pull
        self._woken.append(plan.source_id)
        self.counts.num_begun += 1

    def _may_try(self, source: Worker, target: Worker, now: float) -> bool:
        """The target could read from the source when it last tried, or may try again (PB9)."""
        if not self.pairs.has_any:
            return True
        num_open = sum(pull.source is source and pull.target is target for pull in self._open.values())
        return self.pairs.may_try(Pair(source.process, target.process), now, num_open)

    def tick(self, processes: Collection[Process], now: float) -> None:
        """Forgets troubles of the past; `processes`: those of all workers."""
        if self.pairs.has_any:
            is_open = {_pair_of(pull) for pull in self._open.values()}
            self.pairs.forget_old(processes, is_open, now)

    def _ahead_us(self, worker: Worker) -> float:
        """How long the pulls take that are under way there."""
        return sum(fence.load_us for fence in worker.fences.values())

    # -- end --

    def ended(
        self,
        worker: Worker,
        step_id: int,
        failure: str,
        duration_us: float,
        block_us: Sequence[float],
        now: float,
        fault: ReadFault = ReadFault.PAIR,
    ) -> None:
        """A target says that the pull of a step has ended, how long it took, and what of it a block of each group did;
        `failure`: why nothing of it counts; empty: all of it is there; `fault`: of a failure. News of others are of an
        older link."""
        fence = worker.fences.get(-step_id)
        pull: Pull | None = fence.pull if fence is not None else None
        if fence is None or pull is None:
            return
        # A source whose link ends withdraws its exports (PB5), perhaps before or after we notice. Over TCP its target
        # may see no more than a channel that has closed.
        is_cut_off = pull.source.health is WorkerHealth.SILENT
        is_withdrawn = fault is ReadFault.WITHDRAWN or pull.number not in must_pull(pull.source).shown
        is_withdrawn = is_withdrawn or is_cut_off
        self._close(pull, failure)
        worker.changed[worker.info.worker_id] = None
        if failure and not is_withdrawn:
            self.pairs.failed(_pair_of(pull), failure, now)
        if not failure:
            self.pairs.succeeded(_pair_of(pull))
            of_blocks = sum(each * len(blocks) for each, blocks in zip(block_us, pull.written, strict=False))
            must_pull(worker).pace.pulled(pull.source.info.worker_id, duration_us - of_blocks, block_us, now)
            self.counts.num_ended += 1
            self.counts.num_blocks += sum(map(len, pull.written))
            self.counts.num_tokens += pull.num_tokens
        end_fence(worker, -step_id, failed=bool(failure))
        stop_waiting(fence)

    def detached(self, worker: Worker) -> None:
        """The worker's link has ended: it lets nobody read on, and what it was reading comes to nothing."""
        for pull in list(self._open.values()):
            if pull.target is worker:
                self._close(pull, "target_link")
        ends = pulls_of(worker)
        if ends is not None:
            ends.exports, ends.ended = [], []
            for number in list(ends.shown):
                _let_go(worker, number)

    def _close(self, pull: Pull, failure: str) -> None:
        """The source's blocks are its own again, and it is told so if it was told of the pull."""
        if self._open.pop(pull.number, None) is None:
            return
        if failure:
            self.counts.failed["link" if failure == "target_link" else "target"] += 1
        ends = must_pull(pull.source)
        if pull.number not in ends.shown:
            return  # its link has ended meanwhile
        _let_go(pull.source, pull.number)
        is_told = pull not in ends.exports
        ends.end(pull)
        if is_told:
            self._woken.append(pull.source.info.worker_id)


def _pair_of(pull: Pull) -> Pair:
    return Pair(pull.source.process, pull.target.process)


def _let_go(source: Worker, number: int) -> None:
    source.changed[source.info.worker_id] = None
    for pool, blocks in zip(source.pools, must_pull(source).shown.pop(number), strict=True):
        pool.release(blocks)


def _can_pull(worker: Worker) -> bool:
    return worker.info.pulls_blocks and worker.checkpoints is None


def _shows_to(source: Worker, target: Worker) -> bool:
    is_there = source.attached and not source.is_arriving and not source.vitals.has_left
    return is_there and pulls_of(source) is not None and same_layout(source, target)


def _pool(worker: Worker, group: int) -> BlockPool:
    return worker.pools[group]


def _has(source: Worker, group: int, hashes: Hashes) -> NDArray[np.bool_]:
    is_there: NDArray[np.bool_] = _pool(source, group).find(hashes) >= 0
    return is_there


def _blocks_of(source: Worker, group: int, names: Hashes) -> Blocks:
    return _pool(source, group).find(names)


def _may_show(source: Worker, shown: Sequence[Blocks]) -> bool:
    """What would be held of it is little of what it has to spare."""
    return all(
        pool.num_idle(blocks) * SHOWN_SHARE <= pool.num_available
        for pool, blocks in zip(source.pools, shown, strict=True)
    )
