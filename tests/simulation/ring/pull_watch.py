"""The rules of pulls (docs/design.md, PB), looked at where steps run: nobody touches what is being read from another
worker, nor writes what another worker reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.parts.pulls import PullOrders
from tests.simulation.block_rules import Place, given_away, poison_places, sources, targets
from tests.simulation.ring.clock import current_process
from tests.simulation.ring.rules import note
from worker_svc.steps.engine import StepEngine
from worker_svc.transfer.control.gate import Gate

if TYPE_CHECKING:
    from tests.simulation.ring.nodes import WorkerNode


_REAL_PASSING = Gate.passing


class PullWatch:
    """What one worker process was told of cached blocks."""

    def __init__(self, node: WorkerNode, counts: Counter[str]) -> None:
        self._node, self._counts = node, counts
        self._gates: set[Gate] = set()
        """Those that pulls have passed, or may."""

    def look(self, engine: StepEngine) -> None:
        """Behind a step: which gates are there."""
        self._gates.update(_gates(engine))

    def passes(self, gate: Gate) -> None:
        """Something is read or written beside the steps."""
        if gate in self._gates and gate not in _gates(self._node.steps.engine):
            note("blocks of a pull that is over are read, or written (PB5)")

    def applied(self, changes: Any, used: set[Place]) -> None:
        """A step was taken that touches `used`. What pulled blocks held is gone from now on."""
        runner, orders = self._node.runner, changes.ordered(PullOrders)
        ended = set() if orders is None else set(orders.ended_exports)
        written = given_away(runner, changes) | targets(changes.all_copies, are_host=False)
        written |= set(orders.pull.blocks) if orders is not None and orders.pull is not None else set()
        for order in open_pulls(self._node):
            if touched := used & set(order.blocks):
                note(f"step {changes.step_id} touches {sorted(touched)}, which is being pulled (PB2)")
        for order in open_exports(self._node):
            if order.number not in ended and (torn := written & set(order.blocks)):
                note(f"step {changes.step_id} writes {sorted(torn)}, which others read (PB3)")
        if orders is None:
            return
        self._counts["shown"] += len(orders.exports)
        if orders.pull is not None:
            self._counts["pulls"] += 1
            self._node.ring.faults.pull_begins(self._node.worker_id, orders.pull.source.worker_id)
            fresh = {(group, block) for group, block in orders.pull.blocks}
            poison_places(runner, fresh - sources(changes.all_copies, are_host=False))


def _coordinator(node: WorkerNode) -> Any:
    return node.steps.engine._handoffs._pulls


def _gates(engine: StepEngine) -> list[Gate]:
    ends = engine._handoffs._pulls
    return [each.gate for each in (*ends._pulls.values(), *ends._exports.values())]


@contextmanager
def passing(gate: Gate) -> Iterator[list[int]]:
    """As `Gate.passing`, and a worker's watch hears of it."""
    with _REAL_PASSING(gate) as firsts:
        watch = getattr(current_process().node, "pull_watch", None)
        if watch is not None:
            watch.passes(gate)
        yield firsts


def open_pulls(node: WorkerNode) -> list[Any]:
    """Orders of the pulls that may write blocks yet."""
    return [each.order for each in _coordinator(node)._pulls.values()]


def open_exports(node: WorkerNode) -> list[Any]:
    """Orders of those that others may read yet."""
    return [each.order for each in _coordinator(node)._exports.values()]


def check_pulls(worker: Worker, node: WorkerNode) -> None:
    """PB2: asserts that what a worker still reads from another is nobody's in the scheduler's eyes: the news of an end
    may lag, and never leads."""
    for order in open_pulls(node):
        fence = worker.fences.get(-order.step_id)
        assert fence is not None and fence.pull is not None, "a pull ended before it had"
        for tier, fenced in zip(worker.tiers, fence.groups, strict=True):
            blocks = order.targets(tier.group)
            assert set(blocks) <= set(fenced.blocks.tolist()), "a block that is pulled has no fence"
            assert not tier.pool.ref_counts[blocks].any(), "a block that is pulled has a holder"
            assert not tier.pool.has_content[blocks].any(), "a block that is pulled can be hit"
