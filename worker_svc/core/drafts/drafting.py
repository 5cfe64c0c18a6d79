"""Drafts of a worker's decode rows: how many, which, and what became of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from signalbox.protocol.block_groups import SPINE
from worker_svc.core.batch import RunnerInfo
from worker_svc.core.drafts.drafter import Drafter, DraftRows
from worker_svc.core.drafts.policy import DraftPolicy
from worker_svc.core.requests.request_state import RequestTable
from worker_svc.core.running_step import RunningStep
from worker_svc.core.step import I32, I64, StepDelta

logger = logging.getLogger(__name__)


@dataclass
class DraftTotals:
    """Draft tokens since the start."""

    num_drafted: int = 0
    """Draft tokens that the target model has looked at."""
    num_accepted: int = 0


class Drafting:
    """Stands between the core, the drafter and the policy. A drafter that fails is not asked again: outputs do not
    depend on it."""

    def __init__(self, info: RunnerInfo, num_slots: int, drafter: Drafter) -> None:
        self.totals = DraftTotals()
        self._policy = DraftPolicy(num_slots, info.max_draft_tokens)
        self._block_size = info.block_size
        self._drafter: Drafter | None = drafter

    @property
    def is_on(self) -> bool:
        """The drafter has not failed."""
        return self._drafter is not None

    def start(self, slot: int, limit: int) -> None:
        """Begins anew for a request that moves into `slot`."""
        self._policy.start(slot, limit)

    def forget(self, slot: int) -> None:
        """The slot's request is gone."""
        if self._drafter is not None:
            self._drafter.forget(slot)

    def rest(self) -> None:
        """Forgets what the scheduler was asked for: its link has ended."""
        self._policy.rest()

    def propose(self, table: RequestTable, delta: StepDelta, slots: I64) -> list[I32] | None:
        """Drafts of the decode rows `slots`, which never take the place of the token after them; None: no row has any.

        The step's `delta` is in the table already.
        """
        if self._drafter is None:
            return None
        try:
            return self._propose(self._drafter, table, delta, slots)
        except Exception:
            logger.exception("the drafter failed: no more drafts are made")
            self._drafter = None
            return None

    def _propose(
        self, drafter: Drafter, table: RequestTable, delta: StepDelta, slots: I64
    ) -> list[I32] | None:
        renewed = renewed_blocks(delta, table.block_size)
        copies = [copy for copy in delta.all_copies if copy.group == SPINE]
        if renewed or copies:
            drafter.follow(copies, renewed)
        is_measured = not (delta.chunks or delta.started or delta.resumed)
        may_have = table.max_drafts[slots].any()
        room = draft_room(table, slots) if may_have else np.zeros(len(slots), np.int64)
        limits = self._policy.choose(slots, room, table.max_drafts, is_measured)
        if not (limits > 0).any():
            return None
        rows = DraftRows(slots, limits, table.tokens, table.num_tokens, table.blocks)
        drafts = drafter.propose_all(rows)
        return drafts if any(map(len, drafts)) else None

    def learn(self, step: RunningStep, matched: I64) -> None:
        """Takes what became of a step's drafts into account, and tells the scheduler of new limits.

        `matched` `[D]` are the right drafts per decode row of the batch, -1 where the model failed; empty if no row
        had any.
        """
        report = step.report
        report.draft_limits = self._policy.take_changes()
        if self._drafter is None or self._policy.is_plain:
            return
        drafts = step.drafts if step.drafts is not None else [()] * step.batch.num_decode_rows
        if step.drafts is None:
            matched = np.zeros(len(drafts), np.int64)
        drafted = np.array([len(draft) for draft in drafts], np.int64)
        ran = matched >= 0
        slots = step.batch.slots[: len(drafted)].astype(np.int64)
        self._policy.learn(slots[ran], drafted[ran], matched[ran], self._drafter.caught_up)
        report.num_drafted, report.num_accepted = int(drafted[ran].sum()), int(matched[ran].sum())
        self.totals.num_drafted += report.num_drafted
        self.totals.num_accepted += report.num_accepted

    def take_duration(self, step: RunningStep, seconds: float) -> None:
        """How long a step took, from its drafts to its report. Only steps of decode rows alone tell of drafts."""
        rows = step.batch.num_decode_rows
        if rows and not step.chunks:
            self._policy.take_duration(rows, seconds)


def draft_room(table: RequestTable, slots: I64) -> I64:
    """[R] most drafts of each decode row: by its limit, its end, and its blocks."""
    num_tokens = table.num_tokens[slots]
    room = np.minimum(table.max_drafts[slots], table.limit[slots] - num_tokens - 1)
    room = np.minimum(room, table.num_covered(slots) * table.block_size - num_tokens)
    positive: I64 = np.maximum(room, 0).astype(np.int64)
    return positive


def renewed_blocks(delta: StepDelta, block_size: int) -> list[int]:
    """Blocks that the step gives away for new content: all but those that come with a prefix that is cached."""
    blocks: list[int] = delta.grant_blocks.tolist()
    for start in (*delta.started, *delta.resumed):
        blocks += start.blocks[start.start // block_size :].tolist()
    # What a draft model knows of blocks that come from elsewhere stays there (D6).
    return [*blocks, *delta.brought_to(SPINE)] if delta.orders else blocks
