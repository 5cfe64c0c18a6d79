"""The memory of this process, and how much it may have: its cgroup's limit (version 1 or 2), or a setting."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_STATM = Path("/proc/self/statm")
CGROUP_ROOT = Path("/sys/fs/cgroup")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
Files = tuple[str, str, tuple[str, ...]]
_V2: Files = "memory.max", "memory.current", ("inactive_file", "active_file")
_V1: Files = "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")
"""Names of the limit, of what is in use, and in memory.stat of the page cache: a file that was read twice is active."""
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True)
class Cgroup:
    """A memory cgroup with a limit."""

    directory: Path
    limit_bytes: int
    usage_file: str
    reclaimable: tuple[str, ...]
    """Keys in memory.stat of bytes that the kernel takes back before it kills anybody."""

    def used_bytes(self) -> int:
        """What the kernel cannot take back of what all processes of the cgroup hold; 0: it cannot be read."""
        try:
            usage = int((self.directory / self.usage_file).read_text())
            if 2 * usage < self.limit_bytes:
                return usage  # its statistics cost more to read
            lines = (
                line.partition(" ") for line in (self.directory / "memory.stat").read_text().splitlines()
            )
            return max(0, usage - sum(int(value) for key, _, value in lines if key in self.reclaimable))
        except (OSError, ValueError):
            return 0

    def is_ours_alone(self, pid: int) -> bool:
        """Whether it has no process but `pid` and its children. A whole ring in one container shares its cgroup: what
        a worker holds there is nothing that a frontend could give back."""
        try:
            members = {int(line) for line in (self.directory / "cgroup.procs").read_text().split()}
        except (OSError, ValueError):
            return False
        return pid in members and all(_parent_of(each) in (pid, 0) for each in members - {pid})


class Memory:
    """What is in use, of how much."""

    def __init__(self, limit_bytes: int, cgroup: Cgroup | None = None) -> None:
        """cgroup: whose limit this is; None: it is for this process alone."""
        self.limit_bytes = limit_bytes
        self._cgroup = cgroup

    def used_bytes(self) -> int:
        """Resident bytes of this process, or what its cgroup holds, if that is more and the limit is its."""
        own = resident_bytes()
        return own if self._cgroup is None else max(own, self._cgroup.used_bytes())


def find_memory(wanted_bytes: int) -> Memory | None:
    """The memory to watch: `wanted_bytes` of this process, or what its cgroup may have, if that is less or nothing (0)
    is wanted. In a cgroup that others share this process alone is counted. None: nothing limits it, or the system is
    not Linux."""
    if sys.platform != "linux":
        return None
    cgroup = find_cgroup(Path("/proc/self/cgroup").read_text(), CGROUP_ROOT, _physical_bytes())
    if cgroup is not None and not 0 < wanted_bytes < cgroup.limit_bytes:
        return Memory(cgroup.limit_bytes, cgroup if cgroup.is_ours_alone(os.getpid()) else None)
    return Memory(wanted_bytes) if wanted_bytes else None


def find_cgroup(memberships: str, root: Path, physical_bytes: int) -> Cgroup | None:
    """The tightest limit on the way from this process's cgroup to the root. memberships: /proc/self/cgroup. None: there
    is none below the machine's memory."""
    found = [
        Cgroup(directory, limit, usage, reclaimable)
        for directory, (file, usage, reclaimable) in _candidates(memberships, root)
        if (limit := _read_limit(directory / file)) and limit < physical_bytes
    ]
    return min(found, key=lambda cgroup: cgroup.limit_bytes, default=None)


def resident_bytes() -> int:
    """Resident bytes of this process."""
    return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES


def trim() -> None:
    """Gives the kernel back what the allocator of C keeps of memory that was freed. Takes tens of milliseconds."""
    if _LIBC is not None and hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)


def _candidates(memberships: str, root: Path) -> Iterator[tuple[Path, Files]]:
    """Directories of memory cgroups that this process is in, from its own up. Without a namespace of its own a
    container sees its cgroup at the root, and the path is the host's."""
    for line in memberships.splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base, files = root, _V2
        elif "memory" in controllers.split(","):
            base, files = root / "memory", _V1
        else:
            continue
        own = base / path.lstrip("/")
        for directory in (own, *own.parents):
            yield directory, files
            if directory == base:
                break


def _parent_of(pid: int) -> int:
    """0: the process has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


def _read_limit(path: Path) -> int:
    """0: there is none."""
    try:
        text = path.read_text().strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0


def _physical_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
