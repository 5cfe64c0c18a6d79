"""Files that clients have uploaded or batches have made: `ID.data` and, once it is whole, `ID.json` that says what it
is. All methods block; several processes may use one folder."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from frontend_svc.batches.disk import disk_error, disk_errors, share, sync_folder, write_whole
from frontend_svc.batches.ids import FILE_PREFIX, is_file_id, make_id
from frontend_svc.batches.quota import DiskQuota
from signalbox.errors import RequestTooLargeError, ResourceExhaustedError, UnavailableError

log = logging.getLogger(__name__)

MAX_FILES = 20_000
MAX_TENANT_FILES = MAX_FILES // 2
QUOTA_EVERY_BYTES = 4 << 20
ABANDONED_S = 3600.0
"""A part of a file that nobody has written to for so long has lost its writer, in seconds."""


@dataclass(frozen=True)
class StoredFile:
    """What is known of a file but for its content."""

    id: str
    tenant: str
    """Whose it is; empty: there are no tenants."""
    filename: str
    purpose: str
    num_bytes: int
    created_at: int
    """Seconds since 1970."""
    expires_at: int | None
    """Seconds since 1970; None: it stays."""

    def as_json(self) -> dict[str, Any]:
        """OpenAI's `file` object."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.num_bytes,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
            "status_details": None,
        }


class Upload:
    """A file that is being written. `abort` has to follow where `FileStore.keep` does not."""

    def __init__(self, path: Path, max_bytes: int, quota: DiskQuota, tenant: str) -> None:
        self.path, self.tenant = path, tenant
        self.num_bytes = 0
        self._max_bytes, self._quota = max_bytes, quota
        self._checked_bytes = 0
        self._file: BinaryIO = path.open("xb")

    def write(self, data: bytes) -> None:
        """Raises RequestTooLargeError, ResourceExhaustedError, UnavailableError."""
        self.num_bytes += len(data)
        if self.num_bytes > self._max_bytes:
            raise RequestTooLargeError(f"the file is larger than {self._max_bytes} bytes", field="file")
        if self.num_bytes - self._checked_bytes >= QUOTA_EVERY_BYTES:
            self._checked_bytes = self.num_bytes
            with disk_errors():
                self._quota.check(self.tenant)
        try:
            self._file.write(data)
        except OSError as error:
            raise disk_error(error) from None

    def close(self) -> None:
        """All of it is on the disk. Raises UnavailableError."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        except OSError as error:
            raise disk_error(error) from None

    def abort(self) -> None:
        """Nothing of it stays."""
        with contextlib.suppress(OSError):
            self._file.close()
        self.path.unlink(missing_ok=True)


class FileStore:
    """The files of one folder."""

    def __init__(
        self,
        folder: Path,
        quota: DiskQuota,
        *,
        max_file_bytes: int,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._quota, self._max_file_bytes, self._now = folder, quota, max_file_bytes, now
        folder.mkdir(mode=0o700, exist_ok=True)

    def begin(self, tenant: str) -> Upload:
        """Room for a new file of a tenant. Raises ResourceExhaustedError, UnavailableError."""
        with disk_errors():
            self._quota.check(tenant)
            self._quota.check_files(tenant, MAX_TENANT_FILES)
            if sum(1 for _ in self._ids()) >= MAX_FILES:
                raise ResourceExhaustedError(f"{MAX_FILES} files are kept here; delete some")
            file_id = make_id(FILE_PREFIX)
            self._quota.note(file_id, tenant)
            return Upload(self._folder / f"{file_id}.data", self._max_file_bytes, self._quota, tenant)

    def keep(self, upload: Upload, *, filename: str, purpose: str, expires_s: int | None) -> StoredFile:
        """The file is whole; `expires_s` is how long it stays, None: for good. Raises UnavailableError."""
        upload.close()
        now = int(self._now())
        expires_at = None if expires_s is None else now + expires_s
        file = StoredFile(
            upload.path.stem, upload.tenant, filename, purpose, upload.num_bytes, now, expires_at
        )
        with disk_errors():
            self._publish(file)
        return file

    def adopt(self, path: Path, file: StoredFile) -> None:
        """Keeps what another has written to `path`, under a further name; may be repeated. Raises OSError."""
        share(path, self._data(file.id))
        self._publish(file)

    def find(self, file_id: str) -> StoredFile | None:
        """Returns None if there is no such file, or it has expired. Raises UnavailableError if the disk fails."""
        with disk_errors():
            file = self._load(file_id) if is_file_id(file_id) else None
        return None if file is None or self._has_expired(file) else file

    def can_be_read(self, file: StoredFile) -> bool:
        """Whether its content is there. Raises UnavailableError while it cannot be opened."""
        with disk_errors():
            try:
                self._data(file.id).open("rb").close()
            except FileNotFoundError:
                return False
        return True

    def path_of(self, file: StoredFile) -> Path:
        """Where its content is."""
        return self._data(file.id)

    def share(self, file: StoredFile, target: Path) -> bool:
        """Gives its content a further name, which outlives the file; no when it has just gone. Raises OSError."""
        try:
            share(self._data(file.id), target)
        except FileNotFoundError:
            return False
        return True

    def files(self, after: str, *, newest_first: bool) -> Iterator[StoredFile]:
        """Files behind `after` in the order in which they were made; empty: all."""
        with disk_errors():
            file_ids = sorted(self._ids(), reverse=newest_first)
        for file_id in file_ids:
            if after and (file_id >= after if newest_first else file_id <= after):
                continue
            if (file := self.find(file_id)) is not None:
                yield file

    def delete(self, file_id: str) -> None:
        """Forgets a file; a batch that reads it has a name of its own for it. Raises UnavailableError."""
        with disk_errors():
            self._about(file_id).unlink(missing_ok=True)
            self._data(file_id).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Takes away what has expired, and what nobody finished to write."""
        for file_id in list(self._ids()):
            # What cannot be read now may be read later, or by another version: it is nobody's to delete.
            with contextlib.suppress(OSError, UnavailableError):
                file = self._load(file_id)
                if file is not None and self._has_expired(file):
                    self.delete(file_id)
        oldest = time.time() - ABANDONED_S
        for path in self._folder.iterdir():
            is_part = path.suffix == ".part" or not self._about(path.stem).exists()
            with contextlib.suppress(OSError):
                if is_part and path.stat().st_mtime < oldest:
                    path.unlink()

    def _load(self, file_id: str) -> StoredFile | None:
        """None: there is no such file, or what is told of it is not what this version writes. Raises OSError."""
        try:
            return StoredFile(**orjson.loads(self._about(file_id).read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            log.exception("%s cannot be read", self._about(file_id))
            return None

    def _has_expired(self, file: StoredFile) -> bool:
        return file.expires_at is not None and file.expires_at <= self._now()

    def _publish(self, file: StoredFile) -> None:
        write_whole(self._about(file.id), orjson.dumps(asdict(file)))
        sync_folder(self._folder)

    def _ids(self) -> Iterator[str]:
        return (
            path.stem for path in self._folder.iterdir() if path.suffix == ".json" and is_file_id(path.stem)
        )

    def _data(self, file_id: str) -> Path:
        return self._folder / f"{file_id}.data"

    def _about(self, file_id: str) -> Path:
        return self._folder / f"{file_id}.json"
