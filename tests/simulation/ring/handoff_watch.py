"""The rules of hand-offs (docs/design.md, HO), looked at where steps run, and read off the messages alone: neither the
scheduler's nor the worker's idea of a hand-off is believed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from signalbox.protocol.block_groups import SPINE
from signalbox.v1 import to_worker_pb2
from tests.simulation.ahead import BlockOwners
from tests.simulation.block_rules import Place, poison_places, sources
from tests.simulation.ring.rules import note
from worker_svc.core.requests.request_state import RequestTable
from worker_svc.core.step import StepDelta

if TYPE_CHECKING:
    from tests.simulation.ring.nodes import WorkerNode

Attempt = tuple[str, int]
"""Instance of the frontend, and the attempt's number."""


@dataclass(frozen=True)
class Standing:
    """Where a request stands in a worker's table: at the target as at the source (HO12)."""

    tokens: tuple[int, ...]
    num_prompt: int
    num_computed: int
    num_read: int
    """Of the prompt."""
    limit: int
    sealed: tuple[bytes, ...]
    chain: bytes
    next_seal: int
    meta: bytes

    @classmethod
    def of(cls, table: RequestTable, slot: int) -> Standing:
        """That of a slot now."""
        num_prompt = int(table.num_prompt_tokens[slot])
        return cls(
            tuple(table.tokens[slot, : table.num_tokens[slot]].tolist()),
            num_prompt,
            int(table.num_computed[slot]),
            min(int(table.num_read[slot]), num_prompt) if table.reads_prompt[slot] else 0,
            int(table.limit[slot]),
            tuple(table.sealed[slot]),
            table.chain[slot],
            int(table.next_seal[slot]) if table.chain[slot] else 0,
            table.metas[slot],
        )


@dataclass
class Ledger:
    """What is known of all attempts of a ring."""

    counts: Counter[str] = field(default_factory=Counter)
    ran: dict[tuple[Attempt, int], str] = field(default_factory=dict)
    """By attempt and leg: the process that has run it."""
    newest: dict[Attempt, int] = field(default_factory=dict)
    """The highest leg that has run."""
    frozen: dict[Attempt, Standing] = field(default_factory=dict)
    """How it stood when it was frozen last."""
    is_strict: bool = False
    """Nothing keeps anybody from hearing of anything: legs run one after the other."""

    def runs(self, attempt: Attempt, leg: int, process: str) -> None:
        """A row of it is in a step."""
        runner = self.ran.setdefault((attempt, leg), process)
        if runner != process:
            note(f"leg {leg} of attempt {attempt[1]} ran at {runner}, and runs at {process} (HO6)")
        newest = self.newest.get(attempt, 0)
        self.newest[attempt] = max(leg, newest)
        if self.is_strict and leg < newest:
            note(f"leg {leg} of attempt {attempt[1]} runs behind leg {newest} (HO6)")


class HandoffWatch:
    """What one worker process was told of its slots."""

    def __init__(self, node: WorkerNode, ledger: Ledger, process: str) -> None:
        self._node, self._ledger, self._process = node, ledger, process
        self._legs: dict[int, tuple[int, int]] = {}
        """By slot: attempt, and the leg that was given."""
        self._importing: dict[int, int] = {}
        """By slot: attempt of what is taken over and was not committed."""
        self._frozen: dict[int, int] = {}
        """By slot: attempt of what was frozen and has not been thawed."""
        self._tails: set[tuple[int, int]] = set()
        """(slot, attempt) of what was frozen and whose tail was made: another worker may have all of it."""
        self._goes_on_at: dict[int, tuple[int, int]] = {}
        """By slot: attempt, and the least position at which it may go on here."""

    def moves_in(self, new: to_worker_pb2.NewRequestData) -> None:
        """A request gets a slot."""
        slot = new.slot
        for known in (self._importing, self._frozen, self._goes_on_at):
            known.pop(slot, None)  # type: ignore[attr-defined]
        self._legs[slot] = new.ref.attempt, new.leg
        if new.HasField("import_from"):
            self._ledger.counts["begun"] += 1
            self._importing[slot] = new.ref.attempt

    def applied(self, message: to_worker_pb2.SchedulerOutput, changes: Any, step: Any) -> None:
        """A step was taken; `message` is empty if it is the worker's own."""
        core = self._node.core
        assert core is not None
        handoffs = message.handoffs
        self._take_over(handoffs, changes)
        for slot in changes.preempted_slots:
            self._goes_on_at.pop(slot, None)
        for slot in _u16(handoffs.frozen_slots):
            self._freeze(slot)
        for slot, leg in zip(_u16(handoffs.thawed_slots), _u32(handoffs.thawed_legs), strict=True):
            self._thaw(slot, leg)
        for slot, leg in zip_longest(_u16(handoffs.committed_slots), _u32(handoffs.committed_legs)):
            self._commit(slot, leg, _changed_besides(changes, slot))
        self._check_rows(step.batch)

    def _take_over(self, handoffs: to_worker_pb2.Handoffs, changes: StepDelta) -> None:
        """Whoever reads what blocks held before they were given has read nothing."""
        runner = self._node.runner
        starts, fresh = handoffs.import_starts, set[Place]()
        found = _u32(starts.num_found)
        tables = [(starts.block_counts, starts.block_ids, None)]
        tables += [(group.block_counts, group.block_ids, group.firsts) for group in starts.groups]  # type: ignore[misc]
        for number, (counts, ids, firsts) in enumerate(tables, SPINE):
            ids_left = _u32(ids)
            first_of = _u32(firsts) if firsts is not None else [0] * len(found)
            for num_found, count, first in zip(found, _u32(counts), first_of, strict=True):
                fresh |= {(number, block) for block in ids_left[:count][max(num_found - first, 0) :]}
                ids_left = ids_left[count:]
        poison_places(runner, fresh - sources(changes.all_copies, are_host=False))
        owners, ids_left = runner.owners, _u32(starts.block_ids)
        for slot, num_found, count in zip(_u16(starts.slots), found, _u32(starts.block_counts), strict=True):
            if isinstance(owners, BlockOwners):
                owners.give(slot, ids_left[:count][num_found:])
            ids_left = ids_left[count:]

    def _freeze(self, slot: int) -> None:
        table = self._node.core.table  # type: ignore[union-attr]
        ref = table.refs[slot]
        if ref is None:
            return
        self._ledger.counts["frozen"] += 1
        self._frozen[slot] = ref.attempt
        self._tails.discard((slot, ref.attempt))
        self._ledger.frozen[ref.frontend_instance, ref.attempt] = Standing.of(table, slot)

    def tail_made(self, slot: int, attempt: int) -> None:
        """The tail of a frozen slot goes to another worker."""
        self._tails.add((slot, attempt))

    def goes_on_alone(self, slot: int) -> None:
        """A8: a worker without a scheduler goes on with what it has frozen, if nobody else can have it. Its first step
        may be the next scheduler's."""
        attempt = self._frozen.get(slot)
        if attempt is not None and (slot, attempt) not in self._tails:
            self._ledger.counts["went on alone"] += 1
            del self._frozen[slot]

    def _thaw(self, slot: int, leg: int) -> None:
        ref = self._node.core.table.refs[slot]  # type: ignore[union-attr]
        attempt = self._frozen.pop(slot, None)
        if ref is None or ref.attempt != attempt:
            return
        self._ledger.counts["thawed"] += 1
        _, old = self._legs.get(slot, (attempt, 0))
        self._say(leg > old, f"slot {slot} is thawed with leg {leg}, and had {old} (HO2)")
        self._legs[slot] = attempt, leg

    def _commit(self, slot: int, leg: int, changed: set[str]) -> None:
        """`changed`: what the step says of the slot besides."""
        table = self._node.core.table  # type: ignore[union-attr]
        ref = table.refs[slot]
        attempt = self._importing.pop(slot, None)
        if ref is None or ref.attempt != attempt:
            return
        self._ledger.counts["committed"] += 1
        _, old = self._legs.get(slot, (attempt, 0))
        self._say(leg >= old, f"slot {slot} is committed with leg {leg}, and came with {old} (HO2)")
        self._legs[slot] = attempt, leg
        was = self._ledger.frozen.get((ref.frontend_instance, ref.attempt))
        if was is None:
            self._say(False, f"slot {slot} is committed, and was never frozen (HO5)")
            return
        stands = Standing.of(table, slot)
        for name in stands.__dataclass_fields__.keys() - changed:
            mine, theirs = getattr(stands, name), getattr(was, name)
            self._say(
                mine == theirs, f"{name} of slot {slot} is {mine}, and was {theirs} at the source (HO12)"
            )
        if "num_computed" not in changed:
            self._goes_on_at[slot] = attempt, was.num_computed

    def _check_rows(self, batch: Any) -> None:
        table = self._node.core.table  # type: ignore[union-attr]
        for row, slot in enumerate(batch.slots.tolist()):
            ref = table.refs[slot]
            if ref is None:
                continue
            is_open = self._importing.get(slot) == ref.attempt
            self._say(not is_open, f"slot {slot} is imported and not committed, and runs (HO7)")
            is_frozen = self._frozen.get(slot) == ref.attempt
            self._say(not is_frozen, f"slot {slot} is frozen, and runs (HO7)")
            attempt, leg = self._legs.get(slot, (0, 0))
            if attempt != ref.attempt:
                continue
            has = int(table.legs[slot])
            self._say(has == leg, f"slot {slot} runs leg {has}, and was given {leg} (HO2)")
            self._ledger.runs((ref.frontend_instance, attempt), leg, self._process)
            expected = self._goes_on_at.pop(slot, None)
            at = int(batch.positions[batch.query_starts[row]])
            if expected is not None and expected[0] == attempt:
                self._say(
                    at >= expected[1], f"slot {slot} goes on at {at}, and had {expected[1]} computed (HO6)"
                )

    @staticmethod
    def _say(holds: bool, what: str) -> None:
        """Whoever drives the steps takes what is raised for its own end: the finding is kept."""
        if not holds:
            note(what)


def _changed_besides(changes: StepDelta, slot: int) -> set[str]:
    """Names of what a step that commits a request changes of it, too."""
    starts = {start.slot for start in (*changes.resumed, *changes.started)}
    return {"num_computed"} if slot in starts or slot in changes.preempted_slots else set()


def _u16(column: bytes) -> list[int]:
    return np.frombuffer(column, "<u2").tolist()


def _u32(column: bytes) -> list[int]:
    return np.frombuffer(column, "<u4").tolist()
