"""A machine's processors as the system describes them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

PERFORMANCE = 0.8
"""A core of at least this share of the fastest one's capacity is one of those that are made for speed."""


@dataclass(frozen=True)
class Cpu:
    """A processor that threads are put on: a core, or one of a core's threads."""

    number: int
    core: int
    """Lowest number of the processors that share its core."""
    node: int = 0
    """The node of memory that it reaches fastest."""
    capacity: int = 1024
    """Speed, of 1024 for the fastest kind there is."""


@dataclass(frozen=True)
class Machine:
    """What of a machine this process may use."""

    cpus: tuple[Cpu, ...]
    quota: float | None = None
    """Processors' worth of time that the process and others of its control group may take; None: no limit."""

    @property
    def fast_cpus(self) -> tuple[Cpu, ...]:
        """Processors made for speed: threads that work in step wait for the slowest."""
        fastest = max(cpu.capacity for cpu in self.cpus)
        return tuple(cpu for cpu in self.cpus if cpu.capacity >= PERFORMANCE * fastest)

    @property
    def cores(self) -> tuple[Cpu, ...]:
        """One processor of each fast core, in order."""
        return tuple(_first_of_each(self.fast_cpus, lambda cpu: cpu.core))

    @property
    def nodes(self) -> tuple[int, ...]:
        """Nodes of memory that the fast cores belong to, ascending."""
        return tuple(sorted({cpu.node for cpu in self.cores}))


def _first_of_each(cpus: Iterable[Cpu], key: Callable[[Cpu], Hashable]) -> Iterable[Cpu]:
    first: dict[Hashable, Cpu] = {}
    for cpu in sorted(cpus, key=lambda cpu: cpu.number):
        first.setdefault(key(cpu), cpu)
    return first.values()
