"""A wall clock of one service, which can be set while it runs: libfaketime before its own libraries."""

from __future__ import annotations

from pathlib import Path

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
"""Where Debian and Ubuntu have it; empty: it is not installed."""
READ_EVERY_S = 1


class Clock:
    """What `time.time()`, `datetime.now()` and their like say in one service. Its monotonic clock and the times of
    files are the kernel's."""

    def __init__(self, file: Path) -> None:
        assert LIBRARIES, "a wall clock that can be set needs libfaketime: apt-get install libfaketime"
        self._file = file
        self.set(0)

    def set(self, ahead_s: int) -> None:
        """Ahead of the machine's clock by so much, a second from now at the latest; negative: behind it."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{ahead_s:+d}\n")
        new.rename(self._file)

    @property
    def environment(self) -> dict[str, str]:
        """Of the service."""
        return {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": str(READ_EVERY_S),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
