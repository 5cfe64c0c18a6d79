"""Reads what Linux says of its processors, in /sys and /proc."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

from signalbox.runtime.machine.cpus import Cpu, Machine

CGROUPS = "sys/fs/cgroup"
FULL_CAPACITY, EFFICIENT_CAPACITY = 1024, 512
"""The latter stands for the slower kind of a processor of two kinds that says no number."""


def this_machine() -> Machine:
    """The machine that this process runs on. Where the system is not Linux all processors count as cores."""
    has_affinity = hasattr(os, "sched_getaffinity")
    allowed = os.sched_getaffinity(0) if has_affinity else set(range(os.cpu_count() or 1))
    return read_machine(Path("/"), allowed)


def read_machine(root: Path, allowed: Iterable[int]) -> Machine:
    """The processors `allowed` (cpusets are in that), as the files below `root` describe them.

    What is not said is taken for the usual: each processor is a core, all have one memory and one speed, no quota."""
    numbers = sorted(allowed)
    node_of = dict(_nodes(root))
    slow = parse_list(_text(root / "sys/devices/cpu_atom/cpus"))
    cpus = (_cpu(root, number, node_of.get(number, 0), number in slow) for number in numbers)
    return Machine(tuple(cpus), read_quota(root))


def _cpu(root: Path, number: int, node: int, is_slow: bool) -> Cpu:
    folder = root / f"sys/devices/system/cpu/cpu{number}"
    siblings = parse_list(_text(folder / "topology/core_cpus_list")) or parse_list(
        _text(folder / "topology/thread_siblings_list")
    )
    usual = EFFICIENT_CAPACITY if is_slow else FULL_CAPACITY
    said = _text(folder / "cpu_capacity")
    return Cpu(number, min(siblings, default=number), node, int(said) if said.isdigit() else usual)


def _nodes(root: Path) -> Iterator[tuple[int, int]]:
    """The node of each processor."""
    for folder in sorted((root / "sys/devices/system/node").glob("node[0-9]*")):
        for number in parse_list(_text(folder / "cpulist")):
            yield number, int(folder.name.removeprefix("node"))


def read_quota(root: Path) -> float | None:
    """Processors' worth of time that our control group may take: the least of its own limit and those above it."""
    quotas: list[float] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            for mount in (CGROUPS, f"{CGROUPS}/unified"):
                quotas += _quotas(root / mount, path, _quota_v2)
        elif "cpu" in controllers.split(","):
            for mount in dict.fromkeys((controllers, "cpu", "cpu,cpuacct")):
                quotas += _quotas(root / CGROUPS / mount, path, _quota_v1)
    return min(quotas, default=None)


def _quotas(mount: Path, path: str, read: Callable[[Path], float | None]) -> Iterator[float]:
    """Limits of a group and of those above it. In a container without a name space for groups the path is the host's,
    and only the mount itself is there."""
    inside = PurePosixPath(path.lstrip("/"))
    for group in (inside, *inside.parents):
        if ".." not in group.parts and (quota := read(mount / group)) is not None:
            yield quota


def _quota_v2(group: Path) -> float | None:
    return _ratio(_text(group / "cpu.max").split())


def _quota_v1(group: Path) -> float | None:
    return _ratio([_text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")])


def _ratio(words: list[str]) -> float | None:
    """Quota over period; None where the quota is "max" or -1, or not told."""
    if len(words) != 2 or not all(word.isdigit() for word in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])


def parse_list(text: str) -> frozenset[int]:
    """The numbers of "0-3,8"; none of an empty text."""
    numbers: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def _text(path: Path) -> str:
    """Empty if it is not there, or not for us."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
