"""Where the services of a ring log."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from pathlib import Path

from signalbox.errors import StartupError


class LogDir:
    """A directory for the logs of one ring. One that nobody chose goes when the ring ends, unless its logs can say why
    the ring failed."""

    def __init__(self, chosen: Path | None = None) -> None:
        """Unset: a new temporary one. Raises StartupError when the chosen one cannot be made."""
        self._is_temporary = chosen is None
        self.path = _make_temporary() if chosen is None else chosen
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StartupError(f"cannot make the log directory {chosen}: {error.strerror}") from None

    @property
    def lease(self) -> Path:
        """File that the ring's scheduler that leads has locked, if there are two of them."""
        return self.path.absolute() / "scheduler.lease"

    def check_lease(self) -> None:
        """Raises StartupError when another ring's scheduler has locked it: the two would be one ring."""
        try:
            with self.lease.open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return
        except BlockingIOError:
            sentence = (
                f"another ring with --standby runs in {self.path}; choose another directory with --log-dir"
            )
            raise StartupError(sentence) from None
        except OSError as error:
            raise StartupError(f"cannot lock {self.lease}: {error.strerror}") from None

    def close(self, *, failed: bool) -> bool:
        """Takes away a folder that nobody needs, when the services have ended. Returns whether there are logs to look
        at."""
        keep = failed and any(log.stat().st_size for log in self.path.glob("*.log"))
        if self._is_temporary and not keep:
            shutil.rmtree(self.path, ignore_errors=True)
        return keep or not self._is_temporary


def _make_temporary() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="signalbox-"))
    except OSError as error:
        why = error.strerror or error
        raise StartupError(
            f"cannot make a directory for logs: {why}; name one with --log-dir, or set TMPDIR to another disk"
        ) from None
