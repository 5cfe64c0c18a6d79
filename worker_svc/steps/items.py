"""What arrives at the worker's step engine, in the order of one inbox."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field

from signalbox.v1 import from_worker_pb2, to_worker_pb2
from worker_svc.core.alone.client_orders import ClientAction
from worker_svc.core.step import I32, StepDelta
from worker_svc.grammar.coordinator import FirstMask
from worker_svc.grammar.preparation import Prepared
from worker_svc.links import delta
from worker_svc.steps.misfit import Bounds, misfit_of
from worker_svc.transfer.control.news import Arrival

Snapshot = Future[from_worker_pb2.WorkerSnapshot | None]
"""Somebody waits for the state after all that arrived before, to say hello with it; None: nothing has ever run here."""


@dataclass(eq=False)
class LinkMark:
    """A link to a scheduler, as a mark on all that came by it."""

    is_closed: bool = False
    """Closed for good: what came by it and was not taken is dropped."""
    num_bytes: int = 0
    """Bytes that have come by it; the thread of the links counts."""
    num_taken: int = 0
    """Bytes of those that the engine is done with."""
    newest_start: int = 0
    """The newest step that came by it and computes a prompt: decoding that waits ahead of it may be skipped (K12)."""


@dataclass(frozen=True)
class Greeted:
    """A scheduler has taken our hello. Its term and process; 0 and empty: it did not say."""

    link: LinkMark
    term: int
    instance: str


@dataclass(frozen=True)
class Lent:
    """Blocks that may be used without a scheduler, instead of those before."""

    link: LinkMark
    blocks: list[I32]
    """One column of each group, the spine's first."""


@dataclass(frozen=True)
class ArrivedRequest:
    """A request that moves in."""

    link: LinkMark
    message: to_worker_pb2.NewRequestData


@dataclass
class ArrivedStep:
    """A step and when it came, or was authored; times are of the engine's clock, in seconds."""

    link: LinkMark
    message: to_worker_pb2.SchedulerOutput
    at: float
    looked_at: float = 0.0
    """When the engine last looked whether it may be taken: its own time begins then."""
    _delta: StepDelta | None = field(default=None, repr=False)
    _misfit: str | None = None
    _is_checked: bool = False

    @classmethod
    def own(cls, authored: StepDelta, at: float) -> ArrivedStep:
        """A step of a worker without a scheduler."""
        return cls(_NO_LINK, to_worker_pb2.SchedulerOutput(), at, _delta=authored, _is_checked=True)

    @property
    def delta(self) -> StepDelta:
        """The delta of the step, unpacked once."""
        if self._delta is None:
            self._delta = delta.parse_step(self.message)
        return self._delta

    def misfit(self, bounds: Bounds) -> str | None:
        """Why the step can be for no worker of these bounds; None: it can. Found out once."""
        if not self._is_checked:
            try:
                self._misfit = misfit_of(self.delta, bounds)
            except ValueError as error:
                self._misfit = f"it cannot be read: {error}"
            self._is_checked = True
        return self._misfit


_NO_LINK = LinkMark()


@dataclass(frozen=True)
class ReadUpTo:
    """Behind all of a message: so many bytes have come by the link with it."""

    link: LinkMark
    num_bytes: int


@dataclass(frozen=True)
class LinkClosed:
    """There is no scheduler any more: the worker goes on alone, if one has ever greeted it."""


@dataclass(frozen=True)
class Ordered:
    """What a frontend wants for its clients, by attempt."""

    frontend_instance: str
    orders: tuple[tuple[int, ClientAction], ...]


@dataclass(frozen=True)
class GiveUp:
    """All requests are to be forgotten: no scheduler takes them."""


@dataclass(frozen=True)
class CopiesFailed:
    """Copies beside the steps went wrong."""

    message: str


@dataclass(frozen=True)
class Announce:
    """The scheduler is told once more what became of grammars."""


FromLink = Greeted | Lent | ArrivedRequest | ArrivedStep | ReadUpTo
Item = (
    FromLink
    | LinkClosed
    | Ordered
    | GiveUp
    | Prepared
    | FirstMask
    | CopiesFailed
    | Announce
    | Snapshot
    | Arrival
)
