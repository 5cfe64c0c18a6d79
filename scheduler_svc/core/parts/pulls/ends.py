"""The ends of pulls at one worker, and what it has not been told of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from scheduler_svc.core.parts.pulls.pace import PullPace
from scheduler_svc.core.state.blocks.block_pool import Blocks
from scheduler_svc.core.state.steps.pull import AnyPull, PullOrders


class Puller(Protocol):
    """Knows the other workers: `PullDesk`, by the types of what it is about."""

    def find(self, worker: Any, request: Any, prefix: Any, now: float) -> Any | None:
        """What `worker` is to read from another one for `request`; None: nothing."""

    def begin(
        self, worker: Any, request: Any, plan: Any, needs: Sequence[int], step: Any, now: float
    ) -> None:
        """Orders it with `step`."""


@dataclass
class PullEnds:
    """Pulls under way, and orders for the next step that is no suspect's."""

    puller: Puller | None = None
    """None: the worker pulls nothing."""
    pace: PullPace = field(default_factory=PullPace)
    shown: dict[int, list[Blocks]] = field(default_factory=dict)
    """By number: blocks of each group that others read here. They are held."""
    exports: list[AnyPull] = field(default_factory=list)
    """Pulls among them that the worker has not been told of."""
    ended: list[int] = field(default_factory=list)
    """Numbers of those that are over, which it was told of."""

    @property
    def has_orders(self) -> bool:
        """The next step says something of pulls to a source."""
        return bool(self.exports or self.ended)

    def take_orders(self) -> PullOrders | None:
        """What the step that is being made tells the worker; None: nothing."""
        if not self.has_orders:
            return None
        orders = PullOrders(self.exports, self.ended)
        self.exports, self.ended = [], []
        return orders

    def pinned(self, group: int) -> list[Blocks]:
        """Blocks of a group that are held because others read them, as block tables."""
        return [blocks[group] for blocks in self.shown.values()]

    def find(self, worker: Any, request: Any, prefix: Any, now: float) -> Any | None:
        """As `Puller.find`."""
        return None if self.puller is None else self.puller.find(worker, request, prefix, now)
