"""Cached blocks on their way from one worker to another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from scheduler_svc.core.state.blocks.block_pool import Blocks

WorkerT = TypeVar("WorkerT")


@dataclass(eq=False)
class PullOf(Generic[WorkerT]):
    """One pull. Both lists of blocks are by group, in the same order."""

    number: int
    key: bytes = field(repr=False)
    """What the source asks for."""
    source: WorkerT = field(repr=False)
    target: WorkerT = field(repr=False)
    step_id: int
    """The target's step that begins it."""
    shown: list[Blocks]
    """Blocks at the source that are read."""
    written: list[Blocks]
    """Blocks at the target."""
    num_tokens: int
    """Tokens that need no computing thanks to it."""
    begun_at: float


AnyPull = PullOf[Any]
"""As those know it that it names."""


@dataclass
class PullOrders:
    """What a step tells a source."""

    exports: list[AnyPull] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
