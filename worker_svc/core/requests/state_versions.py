"""Which version of each slot's recurrent state counts. A step reads one and writes the next; its commit flips them.

Of a row with drafts the state is written behind the token that is known, and with it what the drafts give to the
recurrent layers. Those that were right are the version's tail: the next row runs them again ahead of its own tokens.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from worker_svc.core.batch import Batch

NOTHING = -1
"""In the place of a version: the sequence begins, there is no state yet."""


class StateVersions:
    """Columns by slot. Versions of a slot are used in turns: a step that is in flight writes none that another reads.

    Without versions, as for models that have no recurrent layers, nothing is done.
    """

    def __init__(self, num_slots: int, num_versions: int) -> None:
        """num_versions: one more than the steps that can be in flight; with drafts one more than that, for states
        behind drafts, which nobody reads; 0: none."""
        self.num_versions = num_versions
        self.version = np.zeros(num_slots, np.int32)
        """The version that the last committed step wrote."""
        self.num_tokens = np.zeros(num_slots, np.int32)
        """Tokens that this version has behind it; 0: there is no state."""
        self.num_tail = np.zeros(num_slots, np.int32)
        """Drafts behind those that were right."""
        self.num_in_flight = np.zeros(num_slots, np.int32)
        """Steps that write a version and are not committed."""

    def reset(self, slot: int) -> None:
        """The slot has no state: its next sequence begins."""
        self.num_tokens[slot] = self.num_tail[slot] = 0

    def resume(self, slot: int, num_tokens: int) -> int:
        """The slot goes on from a state with so many tokens behind it, which is copied to the version returned."""
        self.num_tokens[slot], self.num_tail[slot] = num_tokens, 0
        return int(self.version[slot])

    def gap_ahead_of(self, slot: int, start: int) -> str:
        """Why no row of the slot can go on from position `start`; empty: one can."""
        num_tokens = int(self.num_tokens[slot]) + int(self.num_tail[slot])
        if not self.num_versions or start in (0, num_tokens) or self.num_in_flight[slot]:
            return ""
        return f"the recurrent state is that of position {num_tokens}, not of {start}"

    def take(self, batch: Batch) -> None:
        """Says in a batch which versions its rows read, NOTHING for those that start at position 0, and write."""
        if not self.num_versions:
            return
        slots, starts = batch.slots, batch.positions[batch.query_starts[:-1]]
        in_flight = self.num_in_flight[slots]
        has_drafts = batch.query_lengths > batch.known_lengths
        assert (in_flight + 2 + has_drafts <= self.num_versions).all(), "too many steps are in flight"
        versions = (self.version[slots] + in_flight) % self.num_versions
        batch.state_tails = np.where((in_flight > 0) | (starts == 0), 0, self.num_tail[slots]).astype(
            np.int32
        )
        self.num_in_flight[slots] += 1
        batch.state_reads = np.where(starts == 0, np.int32(NOTHING), versions)
        batch.state_writes = (versions + 1) % self.num_versions

    def commit(self, batch: Batch, failed: Collection[int], matched: NDArray[np.int64] | None = None) -> None:
        """A step is committed: what its rows wrote are the slots' states, but for the `failed` rows. matched: `[D]`
        right drafts of each decode row, or empty, as None is: no row had any."""
        if not self.num_versions:
            return
        self.num_in_flight[batch.slots] -= 1
        counts = ~np.isin(np.arange(len(batch.slots)), list(failed))
        slots = batch.slots[counts]
        self.version[slots] = batch.state_writes[counts]
        drafted = batch.query_lengths - batch.known_lengths
        self.num_tokens[slots] = (batch.seq_lens - drafted)[counts]
        tails = np.zeros(len(batch.slots), np.int32)
        if matched is not None:
            tails[: len(matched)] = matched
        self.num_tail[slots] = tails[counts]
