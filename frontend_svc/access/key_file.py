"""The key file, read again whenever it changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from frontend_svc.access.keys import Key, read_keys
from signalbox.errors import StartupError

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
_Version = tuple[int, int, int] | None


class KeyFile:
    """The keys that count now. A file that is broken or gone changes nothing but the log: a slip of the pen must
    neither lock everybody out nor let anybody in."""

    def __init__(self, path: Path) -> None:
        """Raises StartupError when the file cannot be read."""
        self._path = path
        self._version = _version_of(path)
        self.keys: Mapping[str, Key] = read_keys(path)

    async def keep_current(self, on_change: Callable[[], None]) -> None:
        """Looks once a second, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            version = await asyncio.to_thread(_version_of, self._path)
            if version != self._version:
                self._version = version
                await self._reload(on_change)

    async def _reload(self, on_change: Callable[[], None]) -> None:
        try:
            self.keys = await asyncio.to_thread(read_keys, self._path)
        except StartupError as error:
            log.error("%s; the keys of before stay valid", error.message)
            return
        log.info("the key file changed: %d keys", len(self.keys))
        on_change()


def _version_of(path: Path) -> _Version:
    """Changes with the file; also where a mounted Secret is a link that moves. None: there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
