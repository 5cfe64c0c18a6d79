"""Who leads, and how many have led before, in the file beside the one that is locked."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

from signalbox.protocol.terms import MAX_TERM

logger = logging.getLogger(__name__)
MAX_BYTES = 1 << 16
"""Most bytes of a record that are read: nobody writes more."""
MAX_COUNTER = MAX_TERM // 2
"""Terms begin above it, and have to rise from there."""


class HolderRecord:
    """A file that helps and decides nothing: who leads has the lock, and terms are safe without a counter (T1). So what
    cannot be read is as if there were none, and what cannot be written keeps nobody from leading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._said = ""
        """What was wrong last, so that it is logged once."""

    @property
    def address(self) -> str:
        """host:port of who leads; empty: not known."""
        address = self._read().get("address")
        return address if isinstance(address, str) else ""

    @property
    def counter(self) -> int:
        """Leaders so far; 0: none, or their count is lost."""
        counter = self._read().get("counter", 0)
        if type(counter) is int and 0 <= counter < MAX_COUNTER:
            return counter
        self._warn(f"{self.path} has no count of leaders; it begins anew")
        return 0

    def write(self, instance: str, address: str, counter: int) -> bool:
        """All of it or nothing, also when the host loses power. False: it could not be written."""
        record = {"instance": instance, "address": address, "counter": counter}
        try:
            self._replace(json.dumps(record))
        except OSError as error:
            self._warn(f"cannot write {self.path}, so that others are not told who leads: {error.strerror}")
            return False
        return True

    def _replace(self, text: str) -> None:
        new = self.path.with_name(f"{self.path.name}.new")
        with new.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _read(self) -> dict[str, Any]:
        """Empty when there is none, or none that can be read."""
        try:
            with self.path.open("rb") as file:
                record = json.loads(file.read(MAX_BYTES))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            self._warn(f"{self.path} cannot be read: {error}")
            return {}
        return record if isinstance(record, dict) else {}

    def _warn(self, said: str) -> None:
        if said != self._said:
            logger.warning("%s", said)
        self._said = said
