"""What the step thread and the event loop say to each other of hand-offs."""

from __future__ import annotations

from dataclasses import dataclass, field

from signalbox.protocol.enums import ReadFault
from signalbox.protocol.parts.pulls import ExportOrder, PullOrder
from signalbox.v1 import transfer_pb2
from worker_svc.core.handoff.exports import Export, Stretch
from worker_svc.core.handoff.imports import Import
from worker_svc.core.step import I32
from worker_svc.grammar.preparation import Prepared
from worker_svc.transfer.control.gate import Gate

# -- of a slot that is read here, to the event loop --


@dataclass(frozen=True)
class ExportBegun:
    """Another worker may read it."""

    export: Export
    gate: Gate


@dataclass(frozen=True)
class ExportGrew:
    """Further blocks of it can be read; and the tail behind them, if it is frozen."""

    export: Export
    stretches: list[Stretch]
    is_frozen: bool = False


@dataclass(frozen=True)
class ExportOver:
    """Nothing of it is read any more."""

    export: Export
    reason: str


@dataclass(frozen=True)
class ExportRecalled:
    """The worker is alone: its tail is not sent any more, unless it was."""

    export: Export


# -- of a slot that is taken over --


@dataclass(frozen=True)
class ImportBegun:
    """Its source may be dialled."""

    found: Import
    gate: Gate
    state_version: int
    """Version that its recurrent state goes to."""


@dataclass(frozen=True)
class ImportGranted:
    """Blocks that may be written: by group, index of the first, and all of them."""

    found: Import
    tables: list[tuple[int, I32]]


@dataclass(frozen=True)
class ImportOver:
    """Nothing of it is written any more."""

    found: Import


# -- of blocks of the cache --


@dataclass(frozen=True)
class CacheExportBegun:
    """Another worker may read them."""

    order: ExportOrder
    gate: Gate
    num_groups: int


@dataclass(frozen=True)
class CacheExportOver:
    """Nothing of them is read any more."""

    order: ExportOrder


@dataclass(frozen=True)
class PullBegun:
    """Their source may be dialled, and ours may be written."""

    order: PullOrder
    gate: Gate
    num_groups: int


@dataclass(frozen=True)
class PullOver:
    """Nothing of ours is written any more."""

    order: PullOrder


SourceNews = ExportBegun | ExportGrew | ExportOver | ExportRecalled | CacheExportBegun | CacheExportOver
TargetNews = ImportBegun | ImportGranted | ImportOver
News = SourceNews | TargetNews | PullBegun | PullOver

# -- of a slot that is read here, to the step thread --


@dataclass(frozen=True)
class ExportKept:
    """Its tail was not sent, and will not be: nobody else can have the request."""

    export: Export


# -- of a slot that is taken over, to the step thread --


@dataclass(frozen=True)
class HeadArrived:
    """The source has said how its tokens are chosen."""

    found: Import
    head: transfer_pb2.PullHead


@dataclass(frozen=True)
class CaughtUp:
    """What is written whole was read, but for a few blocks."""

    found: Import


@dataclass(frozen=True)
class TailArrived:
    """All of it is here."""

    found: Import
    tail: transfer_pb2.PullTail
    written: list[set[int]] = field(repr=False)
    """Indexes of the blocks that were written, by group."""


@dataclass(frozen=True)
class ImportFailed:
    """It never will be here."""

    found: Import
    message: str
    fault: ReadFault


@dataclass(frozen=True)
class ImportPrepared:
    """The automaton of its form."""

    found: Import
    prepared: Prepared
    is_whole: bool
    """It stands behind all output; else the form can be compiled."""


@dataclass(frozen=True)
class PullRead:
    """All blocks of a pull are here, and were their source's to show until then."""

    order: PullOrder
    seconds: float
    block_ns: list[float]
    """What a block of each group took of it, the wait for the source's first word aside."""


@dataclass(frozen=True)
class PullFailed:
    """Nothing of it counts."""

    order: PullOrder
    message: str
    fault: ReadFault


RequestArrival = HeadArrived | CaughtUp | TailArrived | ImportFailed | ImportPrepared
PullArrival = PullRead | PullFailed
Arrival = RequestArrival | PullArrival | ExportKept
