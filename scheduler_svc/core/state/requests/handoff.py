"""One request on its way from one worker to another."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from scheduler_svc.core.state.requests.evidence import Process

RequestT = TypeVar("RequestT")
WorkerT = TypeVar("WorkerT", bound=Any)


class Phase(Enum):
    """How far it is."""

    BEGUN = "begun"
    """The target reads what the source has written."""
    READY = "ready"
    """The target has said that the source may freeze the slot."""
    FROZEN = "frozen"
    """A step of the source that freezes the slot has been made."""
    COMMITTED = "committed"
    FAILED = "failed"


OVER = (Phase.COMMITTED, Phase.FAILED)


@dataclass(eq=False)
class HandoffOf(Generic[RequestT, WorkerT]):
    """A request, and both ends. Until it is committed the request is the source's. Requests and workers name it
    themselves; `typed.Handoff` is it by its types."""

    request: RequestT
    transfer: int
    """Its number (HO2)."""
    key: bytes = field(repr=False)
    """What the source asks for."""
    leg: int
    """The target's."""
    source: WorkerT = field(repr=False)
    """As it is known now: whoever adopts the source's table puts the new one here."""
    source_slot: int
    target: WorkerT = field(repr=False)
    target_slot: int
    has_blocks: bool
    """The request runs; else it waits for its grammar, or was preempted."""
    begun_at: float
    phase: Phase = Phase.BEGUN
    is_source_told: bool = False
    """A step of the source has said who may read the slot."""
    is_target_told: bool = False
    """A step of the target has given the slot."""
    word: int = 0
    """Number by which its frontend acknowledges the target's leg (HO20)."""
    is_heard: bool = True
    """The frontend has heard of the target's leg, or does not acknowledge such words."""
    frozen_at: float | None = None
    """When the step was made that freezes the slot, in seconds."""

    @property
    def is_over(self) -> bool:
        """It is committed, or has failed."""
        return self.phase in OVER

    @property
    def source_process(self) -> Process:
        """Who has the request until the commit."""
        return Process(*self.source.process)

    @property
    def target_process(self) -> Process:
        """Who is to have it."""
        return Process(*self.target.process)


AnyHandoff = HandoffOf[Any, Any]
"""As those know it that it names."""
