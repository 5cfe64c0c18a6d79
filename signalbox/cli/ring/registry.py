"""The rings that run on this machine: each `signalbox up` has a file that says where it is, locked while it runs."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from signalbox.errors import StartupError
from signalbox.runtime.start.user_dirs import state_dir


@dataclass(frozen=True)
class RunningRing:
    """What another process can know of a ring."""

    pid: int
    """Process of `signalbox up`."""
    model: str
    http: str
    """host:port, as the others."""
    grpc: str
    schedulers: str
    """Several are joined by commas."""
    num_workers: int
    log_dir: str
    started_at: float
    """Seconds since the epoch."""


def rings_dir() -> Path:
    """Where the files are. Raises StartupError when the user has no such directory."""
    return state_dir() / "rings"


@contextmanager
def registered(ring: RunningRing) -> Iterator[None]:
    """Has the ring listed while the block runs. Where nothing can be written it runs unlisted."""
    file: IO[str] | None = None
    with suppress(OSError, StartupError):
        path = rings_dir() / f"{ring.pid}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.write(json.dumps(asdict(ring)))
        file.flush()
    try:
        yield
    finally:
        if file is not None:
            with suppress(OSError):
                path.unlink()
            with suppress(OSError):  # what a full disk did not take is written once more
                file.close()


def list_rings() -> list[RunningRing]:
    """The rings that run, oldest first. What a killed one has left is taken away."""
    found = [_read(path) for path in rings_dir().glob("*.json")]
    return sorted((ring for ring in found if ring is not None), key=lambda ring: ring.started_at)


def _read(path: Path) -> RunningRing | None:
    try:
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return RunningRing(**json.load(file))
            path.unlink(missing_ok=True)  # nobody holds it: its ring was killed
    except (OSError, ValueError, TypeError):
        return None
    return None
