"""A lease on one host: a locked file. The kernel lets the lock go with the process that held it, however that ended."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from pathlib import Path
from typing import NoReturn

from scheduler_svc.lease.holder_record import HolderRecord
from scheduler_svc.lease.lease import Holder
from signalbox.errors import LeaseLostError, StartupError

logger = logging.getLogger(__name__)
POLL_S = 0.05
"""Seconds between two tries of who waits: a try is one system call."""
CHECK_S = 1.0


class FileLease:
    """flock on `path`, which stays empty; `path`.holder says who leads and counts.

    The two are apart because the second is replaced as a whole, so that it is never half written, and a file that is
    replaced takes its lock with it. A stopped process keeps the lock: nobody takes over from it (B3). A path that
    cannot be reached for a while takes the lease from nobody and gives it to nobody (B5).
    """

    def __init__(self, path: Path, us: Holder) -> None:
        self._path, self._us = path, us
        self._record = HolderRecord(path.with_name(f"{path.name}.holder"))
        self._file: int | None = None
        """Descriptor of the file that we try to lock, or have locked."""
        self._counter = 0
        """Ours; 0: we do not lead."""
        self._is_recorded = self._is_failing = False
        self.holder_address = ""
        self.predecessor_address = ""
        """Its death is what made the lock free."""

    @property
    def is_held(self) -> bool:
        """Whether this process has the lock."""
        return self._counter > 0

    def check(self) -> None:
        """Raises StartupError when the path is none that could be locked: that is said at the start, and only then."""
        try:
            file = _open(self._path)
            try:
                _lock(file)
            finally:
                os.close(file)
        except OSError as error:
            raise StartupError(f"cannot lock {self._path}: {error.strerror}") from None

    def depose(self, counter: int) -> None:
        """Does nothing: the lock knows better."""

    async def acquire(self) -> int:
        """Waits for the lock, also while the path cannot be reached."""
        while not self._try_lock():
            self.holder_address = self._record.address
            await asyncio.sleep(POLL_S)
        self._counter, self.holder_address = self._record.counter + 1, self._us.address
        self._write_record()
        return self._counter

    async def keep(self) -> NoReturn:
        """Raises LeaseLostError when the lock is lost. Somebody may take the file away: then it is made and locked
        again, unless another was faster."""
        while True:
            await asyncio.sleep(CHECK_S)
            if not self._is_ours():
                self._counter = 0
                raise LeaseLostError(
                    f"{self._path} was removed or replaced, and another scheduler has locked it"
                )
            if not self._is_recorded:
                self._write_record()

    async def release(self) -> None:
        """Gives the lock back."""
        self._counter = 0
        self._close()

    def _try_lock(self) -> bool:
        """The file may be replaced between open and lock: then the lock is worth nothing."""
        try:
            if self._file is None:
                self._file = _open(self._path)
            is_locked, is_there = _lock(self._file), _is_at(self._path, self._file)
        except OSError as error:
            self._close()
            self._fails(error)
            return False
        self._answers()
        if not is_there:
            self._close()
        return is_locked and is_there

    def _is_ours(self) -> bool:
        """Nobody else has locked what stands at the path, or nobody can tell: what we have locked stays so."""
        assert self._file is not None
        try:
            is_ours = _is_at(self._path, self._file) or self._lock_again()
        except OSError as error:
            self._fails(error)
            return True
        self._answers()
        return is_ours

    def _lock_again(self) -> bool:
        """Another file stands there, or none. False: somebody else has locked it."""
        assert self._file is not None
        file = _open(self._path)
        if not _lock(file):
            os.close(file)
            return False
        os.close(self._file)
        self._file = file
        self._counter = max(self._counter, self._record.counter)
        self._is_recorded = False
        logger.warning("%s was removed or replaced; it is locked again", self._path)
        return True

    def _write_record(self) -> None:
        self._is_recorded = self._record.write(self._us.instance, self._us.address, self._counter)

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _fails(self, error: OSError) -> None:
        if not self._is_failing:
            who = "we lead on" if self.is_held else "we wait"
            logger.warning("%s cannot be reached, and %s: %s", self._path, who, error.strerror)
        self._is_failing = True

    def _answers(self) -> None:
        if self._is_failing:
            logger.info("%s can be reached again", self._path)
        self._is_failing = False


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, file: int) -> bool:
    """What we have open is what others find at the path; without one there they find nothing."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
