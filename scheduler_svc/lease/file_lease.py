"""A lease on one host: a locked file. The kernel lets the lock go with the process that held it, however that ended."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from scheduler_svc.lease.lease import Holder
from signalbox.errors import LeaseLostError, StartupError

logger = logging.getLogger(__name__)
POLL_S = 0.05
"""Between two tries of who waits: a try is one system call."""
CHECK_S = 1.0


class FileLease:
    """flock on `path`, which stays empty; `path`.holder says who leads and counts.

    The two are apart because the second is replaced as a whole, so that it is never half written, and a file that is
    replaced takes its lock with it. A stopped process keeps the lock: nobody takes over from it (B3).
    """

    def __init__(self, path: Path, us: Holder) -> None:
        self._path, self._us = path, us
        self._record = path.with_name(f"{path.name}.holder")
        self._file: int | None = None
        """Descriptor of the file that we try to lock, or have locked."""
        self.holder_address = ""
        self.predecessor_address = ""
        """Its death is what made the lock free."""
        self.is_held = False

    def depose(self, counter: int) -> None:
        """See Lease. The lock knows better."""

    async def acquire(self) -> int:
        """See Lease."""
        while not self._try_lock():
            self.holder_address = _text(self._read().get("address"))
            await asyncio.sleep(POLL_S)
        counter = self._count() + 1
        self._write({**asdict(self._us), "counter": counter})
        self.is_held, self.holder_address = True, self._us.address
        return counter

    async def keep(self) -> NoReturn:
        """See Lease. Somebody may take the file away, and others lock a new one then."""
        while True:
            await asyncio.sleep(CHECK_S)
            if not self._is_the_file():
                self.is_held = False
                raise LeaseLostError(f"{self._path} was removed or replaced; another scheduler may lead")

    async def release(self) -> None:
        """See Lease."""
        self.is_held = False
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _try_lock(self) -> bool:
        """The file may be replaced between open and lock: then the lock is worth nothing."""
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            is_locked = _lock(self._file)
        except OSError as error:
            raise StartupError(f"cannot lock {self._path}: {error.strerror}") from None
        if self._is_the_file():
            return is_locked
        os.close(self._file)
        self._file = None
        return False

    def _is_the_file(self) -> bool:
        """What we have open is what others find at the path."""
        assert self._file is not None
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._file), self._path.stat())
        return False

    def _count(self) -> int:
        record = self._read()
        counter = record.get("counter", 0)
        if isinstance(counter, int) and counter >= 0:
            return counter
        logger.warning("%s has no count of leaders; it begins anew", self._record)
        return 0

    def _read(self) -> dict[str, Any]:
        """Empty when there is none, or none that can be read."""
        try:
            record = json.loads(self._record.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            logger.warning("%s cannot be read: %s", self._record, error)
            return {}
        return record if isinstance(record, dict) else {}

    def _write(self, record: dict[str, Any]) -> None:
        """All of it or nothing, also when the host loses power."""
        new = self._record.with_name(f"{self._record.name}.new")
        try:
            with new.open("w") as file:
                json.dump(record, file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._record)
            folder = os.open(self._record.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise StartupError(f"cannot write {self._record}: {error.strerror}") from None


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
