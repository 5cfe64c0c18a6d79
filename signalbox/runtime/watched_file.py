"""A file of a service's operator that is read again whenever it changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from signalbox.errors import StartupError

logger = logging.getLogger(__name__)
T = TypeVar("T")
_Version = tuple[int, int, int] | None


class WatchedFile(Generic[T]):
    """What a file says. One that has become wrong, or is gone, changes nothing but the log: a slip of the pen must
    neither lock everybody out nor let anybody in.

    It is looked at, not waited for: a mounted Secret is a link that moves. A change counts when two looks in a row
    found the same: between them an editor may have emptied the file and not yet written it, and an empty one can be
    a good one that says something else.
    """

    def __init__(self, path: Path, read: Callable[[Path], T], meanwhile: str) -> None:
        """read: raises StartupError with a sentence that names the file. meanwhile: what holds while the file is wrong,
        for the log. Raises StartupError."""
        self.path, self._read, self._meanwhile = path, read, meanwhile
        self._version = self._seen = _version_of(path)
        self.content = read(path)

    def load(self) -> None:
        """Reads it, changed or not. Raises StartupError: then the content stays as it is."""
        self._version = self._seen = _version_of(self.path)
        self.content = self._read(self.path)

    def reload(self) -> bool:
        """Reads it if it has changed, and not since the last look. True: the content is what it says now."""
        before, self._seen = self._seen, _version_of(self.path)
        if self._seen == self._version or self._seen != before:
            return False
        try:
            self.load()
        except StartupError as error:
            logger.error("%s; %s", error.message, self._meanwhile)
            return False
        except Exception as error:  # whatever it holds: whoever looks at it has other things to do
            logger.error("%s cannot be read: %r; %s", self.path, error, self._meanwhile)
            return False
        logger.info("%s has changed", self.path)
        return True


def _version_of(path: Path) -> _Version:
    """Changes with the file, and with what a link points to. None: there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
