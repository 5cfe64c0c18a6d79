"""One batch from its lock to its end. Where it is interrupted it goes on later, here or in another process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

import orjson

from frontend_svc.batches.batch import Batch, BatchStatus
from frontend_svc.batches.batch_store import ERRORS, INPUT, OUTPUT, BatchLease
from frontend_svc.batches.disk import is_full
from frontend_svc.batches.file_store import FileStore, StoredFile
from frontend_svc.batches.ids import result_id
from frontend_svc.batches.input_lines import InputLine, LineReader, validate
from frontend_svc.batches.journal import Journal, make_entry
from frontend_svc.batches.journal_writer import RETRY_S, JournalWriter
from frontend_svc.batches.places import Place, Places
from frontend_svc.batches.threads import in_thread

log = logging.getLogger(__name__)
T = TypeVar("T")

LOOK_S = 0.5
"""How often a batch looks whether it is to be cancelled, and tells how far it is, in seconds."""
RESULT_PURPOSE = "batch_output"
_REST_CODES = {
    BatchStatus.EXPIRED: ("batch_expired", "the completion window was over before this line ran"),
    BatchStatus.CANCELLED: ("batch_cancelled", "the batch was cancelled before this line ran"),
}


@dataclass(frozen=True)
class LineAnswer:
    """What a line came to."""

    status: int
    """Status of HTTP."""
    request_id: str
    body: bytes
    """The answer as JSON."""
    retry_s: float | None = None
    """Seconds after which it is worth trying again; None: it is the answer."""


Execute = Callable[[Batch, bytes], Awaitable[LineAnswer]]
"""Answers the body of one line as the batch's endpoint would."""


@dataclass(frozen=True)
class BatchLimits:
    """How large a batch may be, and how long its results stay."""

    max_lines: int
    max_line_bytes: int
    expire_s: int
    """How long a file of results stays where the batch does not say, in seconds."""


class BatchRun:
    """Works through one batch. `places` are shared by all batches of the process: each line that runs has one."""

    def __init__(
        self,
        lease: BatchLease,
        files: FileStore,
        execute: Execute,
        places: Places,
        limits: BatchLimits,
        check_room: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        self._lease, self._batch, self._folder = lease, lease.batch, lease.folder
        self._files, self._execute, self._places = files, execute, places
        self._limits, self._check_room, self._now = limits, check_room, now
        self._looked = asyncio.Event()
        self.lacks_room = False
        """Its results have no room, for its tenant or for all: it waits, and keeps no place from others (FB7)."""
        self._is_ending = False
        self._answered: set[Place] = set()
        """Places of lines whose answers wait to be written."""

    @property
    def tenant(self) -> str:
        """Whose batch it is."""
        return self._batch.tenant

    def look(self) -> None:
        """It may be cancelled: do not wait for the next look."""
        self._looked.set()

    async def run(self) -> None:
        """Returns when the batch has ended. Raises OSError while its input cannot be read: another run may go on."""
        batch = self._batch
        if batch.status is BatchStatus.VALIDATING and not await self._validate():
            return
        journal = await self._open_journal()
        writer = JournalWriter(journal, batch.id)
        try:
            end = await self._work(journal, writer)
            await self._finish(journal, writer, end)
        finally:
            await writer.stop()
            await in_thread(journal.close)
        await in_thread(self._tidy)

    async def fail(self, code: str, message: str) -> None:
        """Ends it for a reason that is none of its lines'. What was answered by then is its client's."""
        if not self._folder.exists():
            log.error("%s is gone: %s", self._batch.id, message)
            return
        self._batch.errors = [{"code": code, "message": message, "param": None, "line": None}]
        if self._batch.num_lines:
            try:
                await self._publish_what_there_is()
            except Exception:
                log.exception("the results of %s are not kept", self._batch.id)
        await self._come_to(BatchStatus.FAILED)
        await in_thread(self._tidy)

    async def _open_journal(self) -> Journal:
        def read() -> Journal:
            return Journal(self._folder, self._batch.num_lines, self._check_its_room)

        return await self._persist(read, "open the results", waits_for=is_full)

    def _check_its_room(self) -> None:
        """Raises OSError if its results have no room. A batch that ends may tell the rest of its lines in any case: its
        input, which is as large, goes when it has ended, and nobody else could make room for it."""
        if self._is_ending:
            return
        try:
            self._check_room()
        except OSError:
            self.lacks_room = True
            raise
        self.lacks_room = False

    # -- validating --

    async def _validate(self) -> bool:
        """Whether its lines are to run."""
        batch = self._batch
        if await in_thread(lambda: self._lease.is_cancelled):
            await self._come_to(BatchStatus.CANCELLED)
            return False
        report = await in_thread(
            validate,
            self._folder / INPUT,
            batch.endpoint,
            max_lines=self._limits.max_lines,
            max_line_bytes=self._limits.max_line_bytes,
        )
        batch.errors, batch.total, batch.num_lines = report.errors, report.total, report.num_lines
        if report.errors:
            batch.total = 0
            await self._come_to(BatchStatus.FAILED)
            await in_thread(self._tidy)
            return False
        await self._come_to(BatchStatus.IN_PROGRESS)
        return True

    # -- in progress --

    async def _work(self, journal: Journal, writer: JournalWriter) -> BatchStatus:
        """How it ends. Lines that run when it is cancelled are cancelled, and told as such."""
        lines = asyncio.create_task(self._serve_all(journal, writer))
        try:
            while not lines.done():
                if (end := await self._find_end()) is not None:
                    break
                self._note_progress(journal)
                if self.lacks_room:
                    for place in self._answered:
                        place.release()
                looking = asyncio.create_task(self._looked.wait())
                await asyncio.wait([lines, looking], timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                looking.cancel()
                self._looked.clear()
                await self._try_save()
            else:
                lines.result()
                end = BatchStatus.COMPLETED
        finally:
            lines.cancel()
            await asyncio.wait([lines])
        return end

    async def _find_end(self) -> BatchStatus | None:
        """None: it goes on."""
        if self._batch.status is BatchStatus.CANCELLING or await in_thread(lambda: self._lease.is_cancelled):
            return BatchStatus.CANCELLED
        return BatchStatus.EXPIRED if self._now() >= self._batch.expires_at else None

    async def _serve_all(self, journal: Journal, writer: JournalWriter) -> None:
        reader = await in_thread(self._make_reader, journal)
        unread: OSError | None = None  # raised behind the answers of lines that run: nobody is asked twice
        try:
            async with asyncio.TaskGroup() as running:
                while True:
                    try:
                        lines = await in_thread(reader.read)
                    except OSError as error:
                        unread, lines = error, []
                    if not lines:
                        break
                    for line in lines:
                        while self.lacks_room:  # nothing is asked whose answer could not be kept
                            await asyncio.sleep(RETRY_S)
                        await self._places.acquire()
                        place = Place(self._places)
                        task = running.create_task(self._serve(line, writer, place))
                        # Not in the task, which may be cancelled before it has begun.
                        task.add_done_callback(partial(self._give_back, place))
        finally:
            reader.close()
        if unread is not None:
            raise unread

    def _make_reader(self, journal: Journal) -> LineReader:
        path, limit = self._folder / INPUT, self._limits.max_line_bytes
        return LineReader(path, self._batch.endpoint, journal.done, limit)

    def _give_back(self, place: Place, _: asyncio.Task[None]) -> None:
        self._answered.discard(place)
        place.release()

    async def _serve(self, line: InputLine, writer: JournalWriter, place: Place) -> None:
        """Asks until there is an answer that trying again would not change."""
        answer = await self._execute(self._batch, line.body)
        while answer.retry_s is not None:
            await asyncio.sleep(answer.retry_s)
            answer = await self._execute(self._batch, line.body)
        response = {
            "status_code": answer.status,
            "request_id": answer.request_id,
            "body": orjson.Fragment(answer.body),
        }
        is_output = answer.status == HTTPStatus.OK
        self._answered.add(place)
        await writer.write(
            make_entry(
                self._batch.id,
                line.number,
                line.custom_id,
                response=response,
                error=None,
                is_output=is_output,
            )
        )

    def _note_progress(self, journal: Journal) -> None:
        self._batch.completed, self._batch.failed = journal.num_completed, journal.num_failed

    # -- its end --

    async def _finish(self, journal: Journal, writer: JournalWriter, end: BatchStatus) -> None:
        """Every line that was not answered is told as an error; then the files become files of the client."""
        self._is_ending = True
        steps = {BatchStatus.CANCELLED: BatchStatus.CANCELLING}
        await self._come_to(steps.get(end, BatchStatus.FINALIZING))
        await writer.drain()
        if end in _REST_CODES:
            await self._tell_rest(journal, writer, end)
        await self._publish_results(journal)
        await self._come_to(end)

    async def _publish_what_there_is(self) -> None:
        journal = await self._open_journal()
        try:
            await self._publish_results(journal)
        finally:
            await in_thread(journal.close)

    async def _publish_results(self, journal: Journal) -> None:
        """The files become files of the client."""
        self._note_progress(journal)
        await self._persist(journal.sync, "sync the results")
        for kind, name, count in (
            ("output", OUTPUT, journal.num_completed),
            ("error", ERRORS, journal.num_failed),
        ):
            if count:
                file_id = await self._publish(kind, name)
                setattr(self._batch, f"{kind}_file_id", file_id)

    async def _tell_rest(self, journal: Journal, writer: JournalWriter, end: BatchStatus) -> None:
        code, message = _REST_CODES[end]
        reader = await in_thread(self._make_reader, journal)
        try:
            while lines := await in_thread(reader.read):
                error = {"code": code, "message": message}
                await writer.write(
                    *(
                        make_entry(self._batch.id, line.number, line.custom_id, response=None, error=error)
                        for line in lines
                    )
                )
        finally:
            reader.close()

    async def _publish(self, kind: str, name: str) -> str:
        """The file's id."""
        batch, path, now = self._batch, self._folder / name, int(self._now())
        stays_s = self._limits.expire_s if batch.output_expires_s is None else batch.output_expires_s
        file = StoredFile(
            id=result_id(batch.id, kind),
            tenant=batch.tenant,
            filename=f"{batch.id}_{kind}.jsonl",
            purpose=RESULT_PURPOSE,
            num_bytes=0,
            created_at=now,
            expires_at=now + stays_s,
        )

        def adopt() -> None:
            self._files.adopt(path, replace(file, num_bytes=path.stat().st_size))

        await self._persist(adopt, "keep the results")
        return file.id

    def _tidy(self) -> None:
        """What is left of a batch that has ended is what it says of itself."""
        for name in (INPUT, OUTPUT, ERRORS):
            Path(self._folder, name).unlink(missing_ok=True)

    # -- its state --

    async def _come_to(self, status: BatchStatus) -> None:
        self._batch.come_to(status, self._now())
        await self._persist(self._lease.save, "save its state")
        log.info("%s is %s: %d of %d lines", self._batch.id, status, self._batch.completed, self._batch.total)

    async def _try_save(self) -> None:
        try:
            await in_thread(self._lease.save)
        except OSError as error:
            log.warning("%s cannot save how far it is: %s", self._batch.id, error.strerror)

    async def _persist(
        self, work: Callable[[], T], what: str, waits_for: Callable[[OSError], bool] = lambda _: True
    ) -> T:
        """Tries until the disk lets it. Raises an OSError that is not to be waited for."""
        while True:
            try:
                return await in_thread(work)
            except OSError as error:
                if not waits_for(error):
                    raise
                log.warning("%s cannot %s: %s", self._batch.id, what, error.strerror)
                await asyncio.sleep(RETRY_S)
