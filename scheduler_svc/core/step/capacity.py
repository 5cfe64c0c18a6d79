"""What one step of a worker has left for prompts, while it is decided who goes on and who starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

import numpy as np

from scheduler_svc.core.parts.fetch.side_copies import reserved_for_others
from scheduler_svc.core.state.blocks.tier import NOTHING_FOUND, Found
from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.groups.prefix import NO_PREFIX
from scheduler_svc.core.state.groups.window import WindowBlocks
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.core.state.slots.slot_state import DISPLACED, SlotState
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.core.step.displacement import excessive_row
from scheduler_svc.core.step.fetches import Fetch
from scheduler_svc.core.step.prefix_sharing import find_prefix, num_known
from scheduler_svc.core.step.turn_share import turn_share
from signalbox.protocol.block_groups import SPINE


class BlockNeed(NamedTuple):
    """Blocks of one group for a request that is looked up."""

    needed: int
    """New ones."""
    headroom: int
    """Blocks that are left over for those that run."""
    free: int
    """What nobody holds, but for the request's hits."""

    @property
    def lacking(self) -> int:
        """More than are free."""
        return self.needed + self.headroom - self.free


class StepCapacity:
    """Tokens, places and blocks of one step. Prompts take of it in the order of classes; what a request needs that is
    about to start is looked up once. Looking changes nothing, so that the same is asked to explain."""

    def __init__(
        self,
        worker: Worker,
        config: SchedulerConfig,
        num_tokens: int,
        service_received: Callable[[Request], float],
        *,
        is_short: bool,
        now: float,
    ) -> None:
        """`num_tokens` are left beside decode rows. After a shortage of blocks (`is_short`) nobody starts but who may
        displace others."""
        self.worker, self.config, self.now = worker, config, now
        self.num_left = self._num_whole = num_tokens
        """Tokens for prompts."""
        self._is_shared = len(worker.table.lanes) == 1 or not config.enable_chunked_prefill
        """The step has its share of the prompts alone, or has all that it may."""
        self.num_withheld = 0
        """Tokens that `cut` took away, which are there for rows that decode."""
        self.is_cut = False
        self.is_short = is_short
        self.may_prepare = worker.may_prepare
        """Another request may wait here for its grammar."""
        self.service_received = service_received
        self.prefilling = worker.table.prefilling
        """Slots with known tokens that have not been sent, in order."""
        self.busy: set[int] = set()
        """Slots that have a chunk in the step, or got their place back with it."""
        self.left_out: Set[int] = frozenset()
        """Slots that have no turn in the step, and may have to give up what they have."""
        self.prefix, self.num_blocks, self.headroom = NO_PREFIX, 0, 0
        """What is cached of the request that was looked up last, new blocks that it needs, and blocks that have to be
        left over for those that run."""
        self.fetch: Fetch | None = None
        """What is to bring blocks to that request before it starts, once its sources were asked."""
        self.window_needs: list[int] = []
        """New blocks that it needs at once of each group but the spine."""
        self.needs: list[BlockNeed] = []
        """What it needs of each group, and what is there."""

    # -- tokens --

    def leave_out(self, slots: Set[int]) -> None:
        """Gives these slots no chunk in the step."""
        self.left_out |= slots

    def continue_prefills(self, priority: float) -> None:
        """Prompts of the class and those above go on."""
        table = self.worker.table
        for slot in list(self.prefilling):
            if self.num_left <= 0 or table.effective_priority[slot] > priority:
                return
            if (
                table.paused[slot]
                or slot in self.busy
                or slot in self.left_out
                or table.state[slot] != SlotState.PREFILL
            ):
                continue  # the last of these gave its blocks to one before it
            self.cut(int(table.effective_priority[slot]))
            self.continue_prompt(slot)

    def continue_prompt(self, slot: int) -> None:
        """The next chunk of a prompt is for this step."""
        raise NotImplementedError

    def num_partial(self, request: Request) -> int:
        """Prompts of the class of `request` and those above that will go on in later steps."""
        return int(
            np.count_nonzero(
                self.worker.table.effective_priority[self.prefilling] <= request.entry.effective_priority
            )
        )

    def take_chunk(self, slot: int) -> int:
        """Tokens of the next chunk of `slot`, at least one. They are taken."""
        table = self.worker.table
        if not self._is_shared:
            self.num_left = min(self.num_left, turn_share(self.worker, slot))
            self._is_shared = True
        lacking = int(table.target[slot]) - int(table.num_sent[slot])
        threshold = self.config.long_prefill_token_threshold or self.num_left
        length = min(lacking, self.num_left, threshold)
        if self.worker.windows:
            length = min(length, self.window_room(slot) - int(table.num_sent[slot]))
        if self.worker.checkpoints is not None:
            start, target = int(table.num_sent[slot]), int(table.target[slot])
            length = self.worker.checkpoints.rounded(start, length, target)
        self.busy.add(slot)
        self.num_left -= length
        return length

    def cut(self, priority: int) -> None:
        """From here on the step belongs to the class and those below: while requests of a higher one are expected, they
        must not make it long. A quarter of what they may is theirs in any case, so that they go on."""
        most = self.config.lower_class_prefill_tokens
        if not most or self.is_cut or priority <= self.worker.recent_classes.highest(self.now):
            return
        self.is_cut = True
        num_used = self._num_whole - self.num_left
        cut = min(self.num_left, max(most - num_used, -(-most // 4)))
        self.num_withheld, self.num_left = self.num_left - cut, cut

    def advance_of(self, request: Request) -> int:
        """Tokens that a displaced decode row takes as soon as it goes on; 0: it is none."""
        table, slot = self.worker.table, request.slot
        if slot is None or not table.paused[slot] & DISPLACED or table.state[slot] != SlotState.DECODE:
            return 0
        return 1 + int(table.drafts[slot])

    # -- places --

    def is_displaced(self, request: Request) -> bool:
        """It has blocks, and no place."""
        slot = request.slot
        return slot is not None and bool(self.worker.table.paused[slot] & DISPLACED)

    def excessive_row(self, request: Request) -> int | None:
        """A row whose tenant owes its place to that of `request`."""
        if not self.config.is_fair or self.worker.num_displaced >= self.worker.limits.max_num_seqs // 2:
            return None
        return excessive_row(self.worker, request, self.service_received, self.busy)

    # -- blocks --

    def look_up(self, request: Request) -> None:
        """What `request` needs to start, or to go on."""
        worker, slot, self.fetch = self.worker, request.slot, None
        if slot is not None and worker.table.paused[slot] & DISPLACED:
            advance = self.advance_of(request)
            bound = int(worker.table.bound[slot]) + advance
            lacking = worker.table.blocks_needed(bound, slot) if advance else 0
            self.prefix, self.num_blocks, self.headroom = NO_PREFIX, lacking, 0
            self.window_needs = [lacking] * len(worker.windows)
        else:
            self.prefix = find_prefix(worker, request, self.config.enable_prefix_caching)
            num_blocks = -(-num_known(worker, request) // worker.table.block_size)
            self.num_blocks = num_blocks - len(self.prefix.hits)
            self.headroom = self.config.watermark_blocks_per_seq * worker.num_active
            hits = self._window_hits
            self.window_needs = [
                self._needed_at_once(window, found, num_blocks)
                for window, found in zip(worker.windows, hits, strict=True)
            ]
        self.count_lacking(request)

    @property
    def _window_hits(self) -> Sequence[Found]:
        return self.prefix.window_hits or [NOTHING_FOUND] * len(self.worker.windows)

    @property
    def new_blocks(self) -> list[int]:
        """Blocks that what was looked up takes of each group when it starts, checkpoints included."""
        of_states = (
            [] if self.worker.checkpoints is None else [len((self.prefix.state or NOTHING_FOUND).fetched)]
        )
        return [self.num_blocks, *self.window_needs, *of_states]

    def _needed_at_once(self, window: WindowBlocks, hits: Found, num_blocks: int) -> int:
        """New blocks that a start needs of a group: for the whole of its reach at least, so that the prompt goes on
        whatever others take; for all of the prompt where it cannot be cut. Those for `hits` that come from the host
        tier are among them."""
        worker, found = self.worker, self.prefix.num_blocks
        held = found - window.first_block(found * window.block_size)
        most = num_blocks - found
        if self.config.enable_chunked_prefill:
            most = min(
                most, window.group.blocks_of_one(window.block_size, worker.info.max_draft_tokens) - held
            )
        return max(min(most, window.pool.num_blocks - held), 1) + len(hits.fetched)

    def count_lacking(self, request: Request) -> None:
        """Counts again how many blocks others would have to give up for what was looked up."""
        self.needs = [BlockNeed(self.num_blocks, self.headroom, self.num_free_blocks(request))]
        if self.worker.windows:
            _, reserved = reserved_for_others(self.worker, request)
            for window, needed, found in zip(
                self.worker.windows, self.window_needs, self._window_hits, strict=True
            ):
                headroom = self.worker.num_active if self.headroom else 0
                free = self.num_available_of(window) - window.pool.num_idle(found.on_device)
                self.needs.append(BlockNeed(needed, headroom + reserved[window.number], free))

    @property
    def lacking(self) -> list[int]:
        """Blocks of each group that others would have to give up for what was looked up."""
        return [need.lacking for need in self.needs]

    @property
    def is_lacking(self) -> bool:
        """Whether others would have to give up blocks for what was looked up."""
        return any(need.lacking > 0 for need in self.needs)

    def window_room(self, slot: int) -> int:
        """Positions that the prompt of `slot` can have blocks for in all groups but the spine."""
        return min(window.room(slot, self.num_available_of(window)) for window in self.worker.windows)

    def num_available_of(self, window: WindowBlocks) -> int:
        """Blocks of a group that nobody holds."""
        return window.pool.num_available

    def num_free_blocks(self, request: Request) -> int:
        """Blocks that nobody holds, but for hits and for what others are to start with. Whoever makes room may hold
        some of the hits: then they count as available, and are not."""
        pool = self.worker.pool
        return (
            pool.num_available
            - pool.num_idle(self.prefix.hits)
            - reserved_for_others(self.worker, request)[1][SPINE]
        )
