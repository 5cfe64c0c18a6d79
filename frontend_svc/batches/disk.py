"""What the stores do with the disk: files that are there whole or not at all. Everything here blocks."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from signalbox.errors import SignalboxError, UnavailableError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


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


def is_full(error: OSError) -> bool:
    """Whether there is no room, which others may make."""
    return error.errno in _FULL


def disk_error(error: OSError) -> SignalboxError:
    """What a client is told of a disk that failed: nothing of its paths."""
    if is_full(error):
        return UnavailableError("the disk for files is full")
    return UnavailableError(f"the disk for files failed: {error.strerror}")


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """Raises an OSError of what a client has asked for as the UnavailableError that it is told."""
    try:
        yield
    except OSError as error:
        raise disk_error(error) from None
