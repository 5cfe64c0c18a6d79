"""Brings answers to the disk in a thread: all that have come while the last ones were written go in one write."""

from __future__ import annotations

import asyncio
import logging

from frontend_svc.batches.journal import Journal, JournalEntry
from frontend_svc.batches.threads import in_thread

log = logging.getLogger(__name__)

RETRY_S = 2.0
"""How long a disk that is full is left alone, in seconds."""


class JournalWriter:
    """Writes to one journal. A disk that is full makes those wait who write: nothing is lost."""

    def __init__(self, journal: Journal, name: str) -> None:
        self._journal, self._name = journal, name
        self._pending: list[tuple[JournalEntry, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    async def write(self, *entries: JournalEntry) -> None:
        """Returns when all of them are written."""
        written = asyncio.get_running_loop().create_future()
        self._pending += [(entry, written) for entry in entries]
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        await written

    async def drain(self) -> None:
        """Returns when all is written, also what nobody waits for any more."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Gives up what is not written; the journal is not in use any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        is_failing = False
        try:
            while self._pending:
                taken, self._pending = self._pending, []
                try:
                    await in_thread(self._journal.write, [entry for entry, _ in taken])
                except OSError as error:
                    self._pending = taken + self._pending
                    if not is_failing:
                        log.warning("%s waits for its disk: %s", self._name, error.strerror)
                    is_failing = True
                    await asyncio.sleep(RETRY_S)
                except Exception as error:
                    _tell(taken, error)
                else:
                    is_failing = False
                    _tell(taken, None)
        finally:
            self._task = None


def _tell(taken: list[tuple[JournalEntry, asyncio.Future[None]]], error: Exception | None) -> None:
    """What became of entries, for those who wait for them; a bug is theirs to raise."""
    for written in {written for _, written in taken}:
        if written.done():
            continue
        if error is None:
            written.set_result(None)
        else:
            written.set_exception(error)
