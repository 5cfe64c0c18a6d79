"""Where models that were fetched are kept, and how one comes there whole or not at all."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from signalbox.errors import StartupError
from signalbox.runtime.start.user_dirs import cache_dir

PARTIAL = ".partial"


def models_dir() -> Path:
    """Where they are. Raises StartupError when the user has no such directory."""
    return cache_dir() / "models"


@contextmanager
def making(target: Path, needed_bytes: int) -> Iterator[Path]:
    """A directory in which `target` is made, locked against others who make it; what an earlier attempt has left there
    is still in it. It goes when the block ends without an error.

    Raises StartupError when somebody else makes it, or the disk has fewer bytes free than are needed.
    """
    partial = target.parent / PARTIAL / target.name
    with _written(target):
        partial.mkdir(parents=True, exist_ok=True)
        lock = (target.parent / PARTIAL / f"{target.name}.lock").open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartupError(f"another process makes {target} now; wait for it") from None
        with _written(target):
            partial.mkdir(exist_ok=True)  # whoever had the lock may have taken it away since
            _check_space(partial, needed_bytes)
        yield partial
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _written(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StartupError(f"cannot write in the cache {target.parent}: {error.strerror}") from None


def put(made: Path, target: Path) -> None:
    """Moves a finished directory to where it is looked for, at once. One that is there already stays."""
    try:
        made.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def size_of(directory: Path) -> int:
    """Bytes of all files in it; links are followed, as in a cache of Hugging Face."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _check_space(partial: Path, needed_bytes: int) -> None:
    free = shutil.disk_usage(partial).free + size_of(partial)
    if free < needed_bytes:
        raise StartupError(
            f"{partial.parent.parent} has {megabytes(free)} MB free, and {megabytes(needed_bytes)} MB are needed; "
            "make room, or set XDG_CACHE_HOME to another disk"
        )


def megabytes(num_bytes: int) -> int:
    """Millions of bytes, rounded."""
    return round(num_bytes / 1e6)
