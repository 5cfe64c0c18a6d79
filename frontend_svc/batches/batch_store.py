"""Batches on the disk: a folder each, with `batch.json`, its input, its results as they come, a lock, and a mark when
somebody wants it cancelled. All methods block; several processes may use one folder."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from frontend_svc.batches.batch import OPEN, Batch, BatchStatus, load_batch
from frontend_svc.batches.disk import disk_error, disk_errors, sync_folder, write_whole
from frontend_svc.batches.file_store import ABANDONED_S, FileStore, StoredFile
from frontend_svc.batches.ids import is_batch_id
from signalbox.errors import InvalidRequestError, ResourceExhaustedError

log = logging.getLogger(__name__)

MAX_BATCHES = 10_000
MAX_TENANT_BATCHES = MAX_BATCHES // 2
INPUT, OUTPUT, ERRORS = "input.jsonl", "output.jsonl", "errors.jsonl"
_STATE, _LOCK, _CANCEL = "batch.json", "lock", "cancel"


@dataclass
class BatchLease:
    """The lock of one batch: whoever has it works through it. The kernel lets it go with the process."""

    batch: Batch
    folder: Path
    _handle: int

    def save(self) -> None:
        """Raises OSError."""
        write_whole(self.folder / _STATE, self.batch.dump())

    @property
    def is_cancelled(self) -> bool:
        """Somebody wants it cancelled."""
        return (self.folder / _CANCEL).exists()

    def release(self) -> None:
        """Another process may go on with it."""
        os.close(self._handle)


class BatchStore:
    """The batches of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tenants: dict[str, str] = {}
        """Whose batches are, by id, as far as they were asked for: it does not change."""
        folder.mkdir(mode=0o700, exist_ok=True)

    def create(self, batch: Batch, files: FileStore, source: StoredFile) -> None:
        """The batch is there whole, or not at all. Raises InvalidRequestError, ResourceExhaustedError,
        UnavailableError."""
        new = self._folder / f".{batch.id}"
        try:
            if sum(1 for _ in self._ids()) >= MAX_BATCHES:
                raise ResourceExhaustedError(f"{MAX_BATCHES} batches are kept here")
            new.mkdir(mode=0o700)
            if not files.share(source, new / INPUT):
                raise InvalidRequestError(f"the file {source.id} is gone", field="input_file_id")
            write_whole(new / _STATE, batch.dump())
            new.rename(self._folder / batch.id)
            sync_folder(self._folder)
        except OSError as error:
            raise disk_error(error) from None
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def find(self, batch_id: str) -> Batch | None:
        """None: there is no such batch. One that is to be cancelled says so before its worker knows. Raises
        UnavailableError while nobody can say."""
        with disk_errors():
            batch = self._load(batch_id) if is_batch_id(batch_id) else None
        if batch is None:
            return None
        if batch.status in OPEN:
            with contextlib.suppress(OSError):
                batch.come_to(BatchStatus.CANCELLING, (self._folder / batch_id / _CANCEL).stat().st_mtime)
        return batch

    def batches(self, after: str) -> Iterator[Batch]:
        """Batches behind `after`, newest first; empty: all."""
        with disk_errors():
            batch_ids = sorted(self._ids(), reverse=True)
        for batch_id in batch_ids:
            if (not after or batch_id < after) and (batch := self.find(batch_id)) is not None:
                yield batch

    def cancel(self, batch_id: str) -> None:
        """Asks whoever has its lock to end it. Raises UnavailableError."""
        try:
            (self._folder / batch_id / _CANCEL).touch()
        except OSError as error:
            raise disk_error(error) from None

    def take(
        self, skip: set[str], most: int, running: Mapping[str, int], resting: Set[str] = frozenset()
    ) -> list[BatchLease]:
        """Locks up to `most` batches that nobody works on, but for those in `skip`, to which it adds what has ended,
        and those of tenants in `resting`. Tenants take turns: whoever has the fewest of `running` and these is next,
        with the oldest of theirs."""
        leases: list[BatchLease] = []
        num_running, queues = Counter(running), self._by_tenant(skip)
        for tenant in resting & queues.keys():
            del queues[tenant]
        while queues and len(leases) < most:
            tenant = min(queues, key=lambda name: (num_running[name], queues[name][0]))
            batch_id = queues[tenant].popleft()
            if not queues[tenant]:
                del queues[tenant]
            if (lease := self._lock(batch_id)) is None:
                continue
            if lease.batch.has_ended:
                skip.add(batch_id)
                lease.release()
            else:
                leases.append(lease)
                num_running[tenant] += 1
        return leases

    def _by_tenant(self, skip: set[str]) -> dict[str, deque[str]]:
        """Batches of each tenant, oldest first."""
        queues: dict[str, deque[str]] = {}
        for batch_id in sorted(set(self._ids()) - skip):
            if batch_id not in self._tenants:
                try:
                    batch = self._load(batch_id)
                except OSError:
                    continue  # it is looked for again
                if batch is None:
                    continue
                self._tenants[batch_id] = batch.tenant
            queues.setdefault(self._tenants[batch_id], deque()).append(batch_id)
        return queues

    def sweep(self, made_before: float) -> set[str]:
        """Takes away batches that have ended and are older, and what lies there of one whose process died while it was
        being made; returns what is left."""
        self._sweep_unmade()
        left = set(self._ids())
        for batch_id in list(left):
            batch = None
            with contextlib.suppress(OSError):
                batch = self._load(batch_id)
            if batch is None or not batch.has_ended or batch.created_at >= made_before:
                continue
            if (lease := self._lock(batch_id)) is not None:
                shutil.rmtree(self._folder / batch_id, ignore_errors=True)
                lease.release()
                left.discard(batch_id)
                self._tenants.pop(batch_id, None)
        return left

    def _sweep_unmade(self) -> None:
        oldest = time.time() - ABANDONED_S
        for path in self._folder.iterdir():
            with contextlib.suppress(OSError):
                if path.name.startswith(".") and path.stat().st_mtime < oldest:
                    shutil.rmtree(path, ignore_errors=True)

    def _lock(self, batch_id: str) -> BatchLease | None:
        """None: another one works on it, or it is gone."""
        folder = self._folder / batch_id
        try:
            handle = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            batch = self._load(batch_id)  # under the lock: whoever had it may have ended it
        except OSError:
            batch = None
        if batch is None:
            os.close(handle)
            return None
        return BatchLease(batch, folder, handle)

    def _load(self, batch_id: str) -> Batch | None:
        """None: there is no such batch, or it is not what this version writes. Raises OSError."""
        path = self._folder / batch_id / _STATE
        try:
            return load_batch(path.read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            log.exception("%s cannot be read", path)
            return None

    def _ids(self) -> Iterator[str]:
        return filter(is_batch_id, (path.name for path in self._folder.iterdir()))
