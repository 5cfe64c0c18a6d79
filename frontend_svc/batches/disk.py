"""What the stores do with the disk: files that are there whole or not at all. Everything here blocks."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from signalbox.errors import ResourceExhaustedError, SignalboxError, UnavailableError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_USAGE_S = 2.0


def write_whole(path: Path, data: bytes) -> None:
    """Writes `path` so that it has the old content or the new one, whenever the process dies. Raises OSError."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Names that were made or replaced in `folder` outlive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def share(source: Path, target: Path) -> None:
    """Another name for a file that nobody writes to any more; a copy where the file system has no such names."""
    try:
        os.link(source, target)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS):
            raise
        part = target.with_name(f".{target.name}.part")
        shutil.copyfile(source, part)
        part.replace(target)


def disk_error(error: OSError) -> SignalboxError:
    """What a client is told of a disk that failed: nothing of its paths."""
    if error.errno in _FULL:
        return UnavailableError("the disk for files is full")
    return UnavailableError(f"the disk for files failed: {error.strerror}")


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """Raises an OSError of what a client has asked for as the UnavailableError that it is told."""
    try:
        yield
    except OSError as error:
        raise disk_error(error) from None


class DiskQuota:
    """How much may be kept under one folder, whoever has put it there."""

    def __init__(self, root: Path, max_bytes: int) -> None:
        self._root, self._max_bytes = root, max_bytes
        self._measured_s = -_USAGE_S
        self._num_bytes = 0

    def check(self) -> None:
        """Raises ResourceExhaustedError when nothing more may be kept; it is measured every few seconds."""
        if (used := self.num_bytes()) >= self._max_bytes:
            raise ResourceExhaustedError(
                f"files_max_bytes: {used} of {self._max_bytes} bytes are kept; delete files, or wait until some expire"
            )

    def check_room(self) -> None:
        """Raises OSError when nothing more may be kept: batches then wait as they do for a full one."""
        if self.num_bytes() >= self._max_bytes:
            raise OSError(errno.EDQUOT, "files_max_bytes is reached")

    def num_bytes(self) -> int:
        """Bytes of all files, those with several names once."""
        now = time.monotonic()
        if now - self._measured_s >= _USAGE_S:
            self._num_bytes = sum(_sizes(self._root).values())
            self._measured_s = now
        return self._num_bytes


def _sizes(root: Path) -> dict[int, int]:
    """Sizes in bytes by inode."""
    sizes = {}
    for folder, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(OSError):  # it went meanwhile
                status = Path(folder, name).lstat()
                sizes[status.st_ino] = status.st_size
    return sizes
