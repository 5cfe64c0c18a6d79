"""The disk tier of one worker: carries out what steps order, in threads of its own, and tells what the disk has (DT).

Three threads, so that a disk that hangs holds up nothing but itself: one reads files, one writes them
(`writer.py`), and one moves bytes between them and the blocks. The last alone touches blocks.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from signalbox.protocol.parts.disk import DiskOrders
from signalbox.runtime.parts import FAILURES, start_thread
from worker_svc.disk.breaker import Breaker
from worker_svc.disk.directory import Changes, SegmentDirectory
from worker_svc.disk.jobs import Load, Read, Store, blocks_of, by_group
from worker_svc.disk.memory import BlockMemory
from worker_svc.disk.pace import Pace
from worker_svc.disk.segment import Payload
from worker_svc.disk.writer import SegmentWriter
from worker_svc.links import disk_news as news

logger = logging.getLogger(__name__)
MOVER = "disk-blocks"
PROBE_BYTES, PROBE_AGAIN_BYTES = 32 << 20, 4 << 20
"""What is read to know how fast the disk is, of each group: at the start, and after STALE_S without loads."""
STALE_S = 60.0
"""How long the time of a load is believed: what was slow once would be loaded, and measured, never again."""


@dataclass
class DiskCounts:
    """Blocks since the start."""

    num_loaded: int = 0
    num_lost: int = 0
    """Loads that were not there any more, damaged, or too slow."""
    num_loaded_bytes: int = 0
    load_s: float = 0.0


class DiskTier:
    """What steps order goes in by `begin`; events come out by `tell`, in whatever thread."""

    def __init__(self, memory: BlockMemory, directory: SegmentDirectory, tell: news.Tell) -> None:
        self._memory, self._directory, self._tell = memory, directory, tell
        self.sizes = directory.record_bytes
        self.pace, self.counts = Pace(), DiskCounts()
        self._reading = Breaker()
        self._era = 0
        """Rises when links end: what was ordered before touches no block any more."""
        self._stored_from = 0
        """Step from which on stores count: the cache was reset with it."""
        self._measured_at = time.monotonic()
        """When something was loaded last, or tried."""
        self._told: tuple[float, bool] = (0.0, False)
        """What a token costs, and whether nothing is read, as was told last."""
        self._blocks_lock, self._news_lock = threading.Lock(), threading.Lock()
        self._waiting: queue.SimpleQueue[Load | Store | None] = queue.SimpleQueue()
        self._to_read: queue.SimpleQueue[Load | None] = queue.SimpleQueue()
        self._has_ended = False
        """An error has ended one of the threads."""
        self.writer = SegmentWriter(
            directory, self.pace, self._tell_changes, self._probe, self._looked, self._thread_ended
        )
        start_thread(MOVER, self._move, self._mover_ended)
        start_thread("disk-reader", self._read, self._thread_ended)

    @property
    def is_off(self) -> bool:
        """Nothing is read for a while, or, where a thread has ended, ever."""
        return self._has_ended or self._reading.is_off(time.monotonic())

    @property
    def num_read_failures(self) -> int:
        """Reads that failed, and loads that were given up."""
        return self._reading.num_failures

    @property
    def num_left_out(self) -> int:
        """Entries of the directory that cannot be used."""
        return self._directory.num_left_out

    @property
    def num_bytes(self) -> int:
        """Bytes below the directory, by the last look."""
        return self._directory.num_bytes

    # -- what the step thread has to say --

    def begin(self, orders: DiskOrders) -> None:
        """Begins with what a step orders, behind everything that the runner has been given so far."""
        if orders.drops_all:
            self._stored_from = orders.step_id
            self.writer.clear()
        if orders.drops:
            self.writer.drop(orders.drops)
        if orders.stores:
            reads = [
                (group, [each.name for each in some], self._memory.reads_aside(group, blocks_of(some)))
                for group, some in by_group(orders.stores)
            ]
            self._waiting.put(Store(orders, reads, self._era))
        if orders.loads:
            self._begin_loads(orders)
        if self._has_ended:
            self._give_up_waiting()

    def _begin_loads(self, orders: DiskOrders) -> None:
        reads, writes = [], []
        for group, some in by_group(orders.loads):
            numbers = [number for number, load in enumerate(orders.loads) if load.group == group]
            size = self.sizes[group]
            into = np.empty((len(some), size), np.uint8)
            reads.append(Read(group, numbers, [e.name for e in some], into, np.zeros(len(some), np.bool_)))
            writes.append(self._memory.writes_aside(group, blocks_of(some)))
        load = Load(orders, reads, writes, self._era, time.monotonic())
        self._to_read.put(load)
        self._waiting.put(load)

    def wait(self) -> None:
        """The link has ended: what was ordered by it touches no block behind this call."""
        with self._blocks_lock:
            self._era += 1

    # -- what others have to say --

    def announce(self) -> None:
        """Tells all that the disk has; to a scheduler that has just taken a hello."""
        with self._news_lock:
            changes = Changes(added=self._directory.contents(news.MOST_TOLD))
            self._put_out(changes, begins=True)

    def stepped(self, num_prompt_tokens: int, num_rows: int, execute_us: int) -> None:
        """A step was reported."""
        self.pace.computed(num_prompt_tokens, num_rows, execute_us)
        self._tell_measures()

    def _tell_measures(self) -> None:
        """Tells what is measured, if that is news."""
        token_us, was_off = self._told
        if abs(self.pace.token_us - token_us) > 0.25 * self.pace.token_us or self.is_off != was_off:
            self._tell_changes(Changes())

    def close(self, timeout_s: float) -> None:
        """Writes what waits, for so long at most; what was ordered and has not begun is dropped."""
        self.wait()
        self._waiting.put(None)
        self._to_read.put(None)
        self.writer.close(timeout_s)

    # -- blocks --

    def _move(self) -> None:
        while (job := self._waiting.get()) is not None:
            if self._has_ended:
                self._give_up(job)
                continue
            try:
                if isinstance(job, Load):
                    self._load(job)
                else:
                    self._store(job)
            except BaseException as error:  # a device that fails shows in the next step
                self._give_up(job)
                if not isinstance(error, Exception):
                    raise
                FAILURES.add(MOVER, error)

    def _give_up(self, job: Load | Store) -> None:
        """Nothing of it arrives, and whoever waits for it is told so."""
        if isinstance(job, Store):
            self._tell_changes(Changes(removed=job.names))
        self._end(job, range(len(job.orders.loads)))

    def _give_up_waiting(self) -> None:
        """Any thread may call it."""
        with suppress(queue.Empty):
            while True:
                job = self._waiting.get_nowait()
                if job is None:
                    self._waiting.put(None)  # for the thread, if it still runs
                    return
                self._give_up(job)

    def _mover_ended(self, error: BaseException) -> None:
        self._thread_ended(error)
        self._give_up_waiting()

    def _thread_ended(self, error: BaseException) -> None:
        """The tier is off for good: its scheduler is told, and orders nothing more (DT10)."""
        self._has_ended = True
        self._tell_changes(Changes())

    def _load(self, job: Load) -> None:
        most_s = job.orders.most_us / 1e6
        is_there = job.has_read.wait(max(job.begun + most_s - time.monotonic(), 0.0))
        job.is_given_up = not is_there
        if not is_there and self._reading.fail(time.monotonic()):
            logger.error("the disk tier is slow: loads were given up after %.0f ms", most_s * 1e3)
            self._tell_changes(Changes())
        lost: list[int] = []
        with self._blocks_lock:
            if job.era != self._era:
                return
            for read, write in zip(job.reads, job.writes, strict=True):
                if is_there and read.is_read.any():
                    write(read.into)
                lost += [
                    number
                    for number, is_read in zip(read.numbers, read.is_read, strict=True)
                    if not (is_there and is_read)
                ]
        seconds, num_bytes = time.monotonic() - job.begun, sum(read.into.nbytes for read in job.reads)
        self.counts.num_loaded += len(job.orders.loads) - len(lost)
        self.counts.num_lost += len(lost)
        if not lost:
            self.pace.loaded(num_bytes, seconds)
            self._measured_at = time.monotonic()
            self.counts.num_loaded_bytes += num_bytes
            self.counts.load_s += seconds
        self._end(job, lost)

    def _store(self, job: Store) -> None:
        staged = []
        with self._blocks_lock:
            if job.era != self._era:
                return
            is_void = job.orders.step_id < self._stored_from
            for group, names, read in () if is_void else job.reads:
                if not self.writer.has_room(len(names) * self.sizes[group]):
                    self.writer.num_dropped += len(names)
                    self._tell_changes(Changes(removed={group: names}))
                    continue
                rows = read()
                payloads = [Payload(name, memoryview(row)) for name, row in zip(names, rows, strict=True)]
                staged.append((group, payloads))
        self._end(job, ())
        for group, payloads in staged:
            self.writer.put(group, payloads)

    def _end(self, job: Load | Store, lost: Sequence[int]) -> None:
        if isinstance(job, Load):
            self._tell(news.loads_ended(job.orders.step_id, lost))
        else:
            self._tell(news.stores_ended(job.orders.step_id))

    # -- files --

    def _read(self) -> None:
        while (job := self._to_read.get()) is not None:
            try:
                for read in job.reads:
                    if not job.is_given_up and not self.is_off:
                        self._read_group(read)
            finally:
                job.has_read.set()

    def _read_group(self, read: Read, *, is_use: bool = True) -> None:
        changes = Changes()
        try:
            found = self._directory.read(read.group, read.names, read.into, changes, is_use=is_use)
        except Exception as error:
            if not isinstance(error, OSError):  # a bug costs the loads that it meets, not the thread
                FAILURES.add("disk-reader", error)
            self._reading_failed(repr(error))
            return
        finally:
            if changes:
                self._tell_changes(changes)
        read.is_read[:] = found.is_read
        if found.is_read.any():
            self._reading.succeed()
        if found.trouble:
            self._reading_failed(found.trouble)

    def _reading_failed(self, reason: str) -> None:
        if self._reading.fail(time.monotonic()):
            logger.error("the disk tier cannot be read, it is left alone for a while: %s", reason)
            self._tell_changes(Changes())

    def _probe(self) -> None:
        """Reads some of what there is, so that the first request knows what a load takes."""
        self._measure(PROBE_BYTES)

    def _looked(self) -> None:
        """The writer has looked at the directory, as it does every few seconds."""
        if time.monotonic() - self._measured_at > STALE_S and not self.is_off:
            self._measure(PROBE_AGAIN_BYTES)
        self._tell_measures()

    def _measure(self, most_bytes: int) -> None:
        """Reads so much of each group, and tells how long that took."""
        num_bytes, seconds = 0, 0.0
        for group, names in self._directory.contents(max(most_bytes // max(self.sizes), 1)).items():
            if not names:
                continue
            into, begun = np.empty((len(names), self.sizes[group]), np.uint8), time.monotonic()
            read = Read(group, [], names, into, np.zeros(len(names), np.bool_))
            self._read_group(read, is_use=False)
            if read.is_read.all():
                num_bytes, seconds = num_bytes + into.nbytes, seconds + time.monotonic() - begun
        self.pace.measured_anew(num_bytes, seconds)
        self._measured_at = time.monotonic()
        self._tell_changes(Changes())

    # -- news --

    def _tell_changes(self, changes: Changes) -> None:
        with self._news_lock:
            self._put_out(changes)

    def _put_out(self, changes: Changes, *, begins: bool = False) -> None:
        self._told = self.pace.token_us, self.is_off
        for event in news.news_of(self, changes, begins=begins):
            self._tell(event)
