"""What steps order of the disk tier, as its threads pass it on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from signalbox.protocol.parts.disk import DiskOrders, NamedBlock
from worker_svc.disk.memory import U8


@dataclass
class Read:
    """Blocks of one group that are being read from files."""

    group: int
    numbers: list[int]
    """Numbers of the loads, in their order."""
    names: list[bytes]
    into: U8
    is_read: NDArray[np.bool_]


@dataclass(eq=False)
class Load:
    """The loads of a step."""

    orders: DiskOrders
    reads: list[Read]
    writes: list[Callable[[U8], None]]
    """What writes the blocks of each of `reads`."""
    era: int
    begun: float
    has_read: threading.Event = field(default_factory=threading.Event)
    is_given_up: bool = False


@dataclass(frozen=True, eq=False)
class Store:
    """The stores of a step, of each group what reads its blocks."""

    orders: DiskOrders
    reads: list[tuple[int, list[bytes], Callable[[], U8]]]
    era: int

    @property
    def names(self) -> dict[int, list[bytes]]:
        """Contents that are to be stored, by group."""
        return {group: names for group, names, _ in self.reads}


def by_group(some: Sequence[NamedBlock]) -> list[tuple[int, list[NamedBlock]]]:
    """Splits named blocks by group, in the order of the groups."""
    groups = sorted({each.group for each in some})
    return [(group, [each for each in some if each.group == group]) for group in groups]


def blocks_of(some: Sequence[NamedBlock]) -> NDArray[np.int32]:
    """Ids of the named blocks."""
    return np.array([each.block for each in some], np.int32)
