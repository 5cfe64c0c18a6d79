"""Who guesses next tokens for decode rows, ahead of the target model's run that checks the guesses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker_svc.core.batch import BlockCopy

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


@dataclass(frozen=True)
class DraftRows:
    """Decode rows that may have drafts; R rows. The columns by slot are the request table's own: not to be written."""

    slots: I64
    """[R] slot of each row."""
    limits: I64
    """[R] most drafts; 0: none are wanted. The slot's blocks have room for them all."""
    tokens: I32
    """[num_slots, max_model_len] known tokens of each slot."""
    num_tokens: I32
    """[num_slots] how many are known."""
    blocks: I32
    """[num_slots, W] block table of each slot."""

    def known(self, slot: int) -> I32:
        """All known tokens of `slot`'s request; a view."""
        return self.tokens[slot, : self.num_tokens[slot]]


class Drafter:
    """Guesses that depend on nothing but a request's known tokens: whoever asks again gets the same.

    One thread calls it. Whatever it returns, outputs stay the same; only their speed depends on it.
    """

    caught_up = False
    """The last guesses took work that further guesses for the same requests will not take."""

    def propose(self, slot: int, tokens: I32, limit: int) -> I32:
        """Guesses for what follows `tokens`, all known of the slot's request: at most `limit`, which is 1 or more."""
        raise NotImplementedError

    def propose_all(self, rows: DraftRows) -> list[I32]:
        """Guesses for each row, at most its limit."""
        none = np.empty(0, np.int32)
        return [
            self.propose(slot, rows.known(slot), limit)[:limit] if limit > 0 else none
            for slot, limit in zip(rows.slots.tolist(), rows.limits.tolist(), strict=True)
        ]

    def follow(self, copies: list[BlockCopy], renewed: list[int]) -> None:
        """Ahead of a step: its block copies are made, then the blocks `renewed` are given away for new content."""

    def forget(self, slot: int) -> None:
        """The slot's request is gone."""
