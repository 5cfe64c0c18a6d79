"""Parts: optional features of one worker. A worker holds the parts that its hello names, and a step asks these and no
others (PT1 to PT5)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar

from scheduler_svc.core.state.blocks.block_pool import Blocks
from scheduler_svc.core.state.steps.step import StepDecision

PartT = TypeVar("PartT", bound="Part")


class Phase(Enum):
    """Phases of making a step, in order (K3, PT3). Parts act at one place of each."""

    FINISH = "finish"
    """Slots that have ended are named, and slots that were paused for a suspect's step go on; then parts act: frozen
    slots go on. Then slots whose final chunk was sent become decode rows."""
    PREEMPT = "preempt"
    """Parts act: rows change their lane. Then rows that the worker refused are preempted."""
    COPY = "copy"
    """Parts act: slots are frozen for another worker, or taken over from one. Then pauses and limits of drafts take
    effect."""
    GRANT = "grant"
    """Rows get the blocks that they need next. No part acts."""
    START = "start"
    """Prompts go on; slots resume and start. No part acts, but sources are asked (PT4)."""
    ORDER = "order"
    """Parts act: orders beside the rows, as states to keep, blocks to save, stores, reads by others."""
    RECORD = "record"
    """The step is recorded as in flight, unless it is empty. No part acts."""


class Resource(Enum):
    """State of a worker, or of the step, that several parts share."""

    TABLE = "table"
    POOL = "pool"
    """Blocks of all groups, and what the host tier has of them."""
    STATES = "states"
    """Checkpoints of recurrent states, and what the host tier has of them."""
    COPIES = "copies"
    """Copies of the step, which the worker makes in order."""
    BUDGET = "budget"
    """Tokens of the step."""


class Claim(NamedTuple):
    """Shared state that a part reads and writes in one phase."""

    reads: frozenset[Resource] = frozenset()
    writes: frozenset[Resource] = frozenset()
    """It may read these, too."""

    def is_independent(self, other: Claim) -> bool:
        """Neither writes what the other reads or writes: the two may act in any order (PT3)."""
        return not (self.writes & (other.reads | other.writes) or other.writes & self.reads)


class Part:
    """One optional feature of one worker. Every hook does nothing here; a part overrides those that it needs."""

    name: ClassVar[str]
    acts: ClassVar[Mapping[Phase, Claim]] = MappingProxyType({})
    """Phases in which `act` is called, and the shared state that it reads and writes there."""
    rank: ClassVar[int]
    """Order among the parts that act in one phase, and among sources: lowest first."""
    is_idle: bool = False
    """The part has nothing to order: `act` and `has_work` are not called (PT1). The other hooks are."""

    @property
    def has_orders(self) -> bool:
        """The next step has something to tell the worker for this part."""
        return False

    def has_work(self) -> bool:
        """A step would not be empty even if nothing else were in it."""
        return self.has_orders

    def act(self, phase: Phase, step: StepDecision, now: float) -> None:
        """Takes part in making `step`."""
        raise NotImplementedError

    def blocks_change(self, slot: int, reason: str) -> None:
        """The running slot loses its blocks with the step that is being made, or a slot without blocks gets some."""

    def released(self, slot: int) -> None:
        """The request of the slot has ended, or is another worker's."""

    def completed(self, slot: int) -> None:
        """The prompt of a running slot is computed, or its request is about to finish without an error."""

    def computed(self, num_prefill_tokens: int, num_decode_rows: int, execute_us: int) -> None:
        """A step of the worker has been reported."""

    def cache_reset(self) -> None:
        """All cached content of the worker is to be forgotten."""

    def check_integrity(self) -> None:
        """Asserts what must hold between steps."""
        assert not (self.is_idle and self.has_orders), f"{self.name} has orders, and no step asks for them"

    def pinned(self, group: int) -> list[Blocks]:
        """Blocks of the group that this part holds, as block tables."""
        return []


class Source(Part):
    """A part that can bring cached blocks to a request that is about to start: from the host tier, a disk or another
    worker."""

    shares_step: ClassVar[bool] = False
    """A step may begin several fetches of this source. Fetches of two sources never begin in one step."""

    def find(self, request: Any, prefix: Any, needs: list[int], now: float) -> Any | None:
        """What this source brings before `request` starts, instead of a start with `prefix` now; None: nothing.
        `needs`: new blocks of each group that it would start with now."""
        raise NotImplementedError

    def may_fetch(self, step: StepDecision) -> bool:
        """No fetch that `step` has begun excludes another one of this source."""
        return step.fetch is None or (self.shares_step and step.fetch.source == self.name)

    def fetch(self, request: Any, plan: Any, needs: list[int], step: StepDecision, now: float) -> None:
        """Orders with `step` what `find` returned. `request` waits for that once: after the fetch has ended, or failed,
        it is looked at again."""
        raise NotImplementedError

    def explain(self, plan: Any) -> str:
        """A sentence for operators: what is to come first."""
        raise NotImplementedError


ASKED = frozenset({Phase.FINISH, Phase.PREEMPT, Phase.COPY, Phase.ORDER})
"""Phases in which parts act."""


def _may_order(kind: type[Part]) -> bool:
    return kind.has_orders is not Part.has_orders or kind.has_work is not Part.has_work


class Parts:
    """The parts of one worker, and for each hook of a step those that override it."""

    def __init__(self) -> None:
        self._by_kind: dict[type[Part], Part] = {}
        self.all: tuple[Part, ...] = ()
        self.sources: tuple[Source, ...] = ()
        self.finish: tuple[Part, ...] = ()
        self.preempt: tuple[Part, ...] = ()
        self.copy: tuple[Part, ...] = ()
        self.order: tuple[Part, ...] = ()
        self.ordering: tuple[Part, ...] = ()
        self.completing: tuple[Part, ...] = ()
        self.computing: tuple[Part, ...] = ()

    def add(self, part: Part) -> None:
        """The worker has `part` from now on, instead of one of the same kind."""
        assert ASKED.issuperset(part.acts), f"{part.name} acts in a phase in which no part is asked"
        self._by_kind[type(part)] = part
        self.all = tuple(sorted(self._by_kind.values(), key=lambda each: each.rank))
        self.sources = tuple(each for each in self.all if isinstance(each, Source))
        self.finish, self.preempt, self.copy, self.order = (
            tuple(each for each in self.all if phase in each.acts)
            for phase in (Phase.FINISH, Phase.PREEMPT, Phase.COPY, Phase.ORDER)
        )
        self.ordering = tuple(each for each in self.all if _may_order(type(each)))
        self.completing = tuple(each for each in self.all if type(each).completed is not Part.completed)
        self.computing = tuple(each for each in self.all if type(each).computed is not Part.computed)

    @property
    def has_orders(self) -> bool:
        """The next step has something to tell the worker for a part."""
        for part in self.ordering:  # noqa: SIM110 - a generator costs a call for each part
            if not part.is_idle and part.has_orders:
                return True
        return False

    def get(self, kind: type[PartT]) -> PartT | None:
        """The part of that kind; None: the worker has none."""
        part = self._by_kind.get(kind)
        return part if isinstance(part, kind) else None
