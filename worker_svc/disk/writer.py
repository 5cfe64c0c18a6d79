"""Writes segments in a thread of its own, and looks now and then what others have written and deleted."""

from __future__ import annotations

import json
import logging
import math
import platform
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import NamedTuple

from signalbox.runtime.parts import FAILURES, start_thread
from worker_svc.disk.breaker import Breaker
from worker_svc.disk.directory import Changes, SegmentDirectory
from worker_svc.disk.pace import Pace
from worker_svc.disk.segment import Payload

logger = logging.getLogger(__name__)
WRITER = "disk-writer"
IDLE_S = 0.3
"""What waits is written when nothing has come for so long: a conversation that has ended is on disk soon."""
LOOK_S = 2.0
MOST_STAGED_BYTES = 128 << 20
"""Blocks that wait to be written; more are not stored."""
MOST_SEGMENT_BYTES = 16 << 20
NODE = blake2b(platform.node().encode(), digest_size=6).hexdigest()
Work = Callable[[Changes], object]
"""Adds what it changes to what it is given, before it raises, too."""


class _Staged(NamedTuple):
    group: int
    payloads: list[Payload]


class SegmentWriter:
    """One thread that alone writes, deletes and looks."""

    def __init__(
        self,
        directory: SegmentDirectory,
        pace: Pace,
        on_changes: Callable[[Changes], None],
        on_start: Callable[[], None],
        on_look: Callable[[], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """All are called in the thread. on_start: when it has looked for the first time; on_look: each time after;
        on_failed: an error has ended it."""
        self._directory, self._pace, self._on_changes = directory, pace, on_changes
        self._on_start, self._on_look, self._on_failed = on_start, on_look, on_failed
        self._inbox: queue.SimpleQueue[_Staged | Work | None] = queue.SimpleQueue()
        self._staged: dict[int, list[Payload]] = {}
        self._num_staged_bytes = 0
        self._wrong: set[bytes] = set()
        """Contents that have turned out to be wrong."""
        self._lock = threading.Lock()
        self.breaker = Breaker()
        self.num_written = self.num_dropped = 0
        """Blocks that were written, and that were not because the disk was full, slow or broken."""
        self._saved_token_us = 0.0
        self._most_bytes = max(min(MOST_SEGMENT_BYTES, directory.max_bytes // 8), 1)
        self._has_ended = False
        """An error has ended the thread."""
        self._thread = start_thread(WRITER, self._run, self._ended)

    def has_room(self, num_bytes: int) -> bool:
        """So much may be put now; otherwise it is not to be stored."""
        if self._has_ended or self.breaker.is_off(_now()):
            return False
        with self._lock:
            return self._num_staged_bytes + num_bytes <= MOST_STAGED_BYTES

    def put(self, group: int, payloads: list[Payload]) -> None:
        """Has these written soon."""
        with self._lock:
            self._num_staged_bytes += sum(len(payload.content) for payload in payloads)
        self._inbox.put(_Staged(group, payloads))
        if self._has_ended:
            self._drop_waiting()

    def drop(self, names: Sequence[bytes]) -> None:
        """Contents that are wrong: what has any of them is deleted, and none of them is written from now on."""
        with self._lock:
            self._wrong.update(names)
        self._inbox.put(lambda changes: self._directory.drop(names, changes))

    def clear(self) -> None:
        """All that is there is deleted, with what was put before."""

        def work(changes: Changes) -> None:
            waiting = [payload for payloads in self._staged.values() for payload in payloads]
            with self._lock:
                self._num_staged_bytes -= sum(len(payload.content) for payload in waiting)
            self._staged = {}
            self._directory.clear(changes)

        self._inbox.put(work)

    def close(self, timeout_s: float) -> None:
        """Writes what waits, for so long at most."""
        self._inbox.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        self._read_pace()
        self._try("looked at", self._directory.look)
        self._on_start()
        looked = _now()
        while True:
            try:
                item = self._inbox.get(timeout=IDLE_S)
            except queue.Empty:
                self._flush()
                item = _nothing
            if item is None:
                self._flush()
                self._write_pace()
                return
            if isinstance(item, _Staged):
                self._take(item)
            else:
                self._try("changed", item, even_if_off=True)
            if _now() - looked > LOOK_S:
                self._try("looked at", self._directory.look)
                self._write_pace()
                self._on_look()
                looked = _now()

    def _ended(self, error: BaseException) -> None:
        """Nothing is written any more: what waits is dropped, and its scheduler told so."""
        self._has_ended = True
        logger.error(
            "nothing is stored in %s any more, and what turns out to be wrong there is not deleted: empty it if others"
            " share it",
            self._directory.path,
        )
        self._on_failed(error)
        staged, self._staged = self._staged, {}
        for group, payloads in staged.items():
            self._not_written(group, payloads)
        self._drop_waiting()

    def _drop_waiting(self) -> None:
        """Any thread may call it."""
        with suppress(queue.Empty):
            while True:
                item = self._inbox.get_nowait()
                if isinstance(item, _Staged):
                    self._not_written(item.group, item.payloads)

    def _not_written(self, group: int, payloads: Sequence[Payload]) -> None:
        with self._lock:
            self._num_staged_bytes -= sum(len(payload.content) for payload in payloads)
        self.num_dropped += len(payloads)
        self._on_changes(Changes(removed={group: [payload.name for payload in payloads]}))

    def _take(self, item: _Staged) -> None:
        waiting = self._staged.setdefault(item.group, [])
        waiting += item.payloads
        per_segment = max(self._most_bytes // self._directory.record_bytes[item.group], 1)
        while len(waiting) >= per_segment:
            self._write(item.group, waiting[:per_segment])
            del waiting[:per_segment]

    def _flush(self) -> None:
        for group, payloads in self._staged.items():
            if payloads:
                self._write(group, payloads)
        self._staged = {}

    def _write(self, group: int, payloads: Sequence[Payload]) -> None:
        by_name = {payload.name: payload for payload in payloads if payload.name not in self._wrong}
        fresh = [each for each in by_name.values() if (group, each.name) not in self._directory]
        is_written = not fresh or self._try(
            "written", lambda changes: self._directory.write(group, fresh, changes)
        )
        with self._lock:
            self._num_staged_bytes -= sum(len(payload.content) for payload in payloads)
        if is_written:
            self.num_written += len(fresh)
        else:
            self.num_dropped += len(fresh)
            self._on_changes(Changes(removed={group: [payload.name for payload in fresh]}))

    def _try(self, what: str, work: Work, *, even_if_off: bool = False) -> bool:
        if self.breaker.is_off(_now()) and not even_if_off:
            return False
        changes = Changes()
        try:
            work(changes)
        except Exception as error:
            if not isinstance(error, OSError):  # a bug costs the work that it meets, not the thread
                FAILURES.add(WRITER, error)
            if self.breaker.fail(_now()):
                logger.error("the disk tier cannot be %s, nothing is stored for a while: %r", what, error)
            return False
        finally:
            if changes:
                self._on_changes(changes)
        if work is not _nothing:
            self.breaker.succeed()
        return True

    # -- what computing costs here, so that the next process knows (DT7) --

    def _read_pace(self) -> None:
        with suppress(Exception):  # whatever the file holds: what it says is measured again
            known = json.loads((self._directory.path / f"pace-{NODE}.json").read_text())
            token_us = float(known["token_us"])
            if math.isfinite(token_us):
                self._pace.token_us = self._saved_token_us = min(max(token_us, 0.0), 1e6)

    def _write_pace(self) -> None:
        token_us = self._pace.token_us
        if (
            not token_us
            or abs(token_us - self._saved_token_us) < 0.2 * token_us
            or self.breaker.is_off(_now())
        ):
            return
        path = self._directory.path / f"pace-{NODE}.json"
        with suppress(OSError):
            temporary = path.with_suffix(".tmp")
            temporary.write_text(json.dumps({"token_us": round(token_us, 3)}))
            temporary.rename(path)
            self._saved_token_us = token_us


def _nothing(changes: Changes) -> None:
    """The work when none came."""


def _now() -> float:
    return time.monotonic()
