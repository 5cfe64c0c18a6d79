"""Blocks lent to workers for the time when they have no scheduler (docs/liveness.md, A3).

A loan is a hint: nothing is allocated, and the pool knows nothing of it. Lent are the blocks that would be given away
next, as many as the running requests need for twice LOAN_S at the speed of late. A new loan is made when half of the
old one has been given away, or is too little: so LOAN_S are left whenever the scheduler dies. The worker gives nothing
away that a later step names, or that its slots hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.state.blocks.block_pool import NO_BLOCKS, BlockPool, Blocks

LOAN_S = 12.0
"""Seconds that running requests are to go on without a scheduler, at least."""
KEPT_RATE = 0.75
"""Share of the measured speed that is still counted on a look later: loans do not shrink with one slow step."""


@dataclass
class Loan:
    """What a worker has been lent."""

    rate: float = 0.0
    """Output tokens of the worker per second, of late."""
    blocks: Blocks = field(default_factory=lambda: NO_BLOCKS)
    _generations: NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))
    _counted: int = 0
    _looked_at: float | None = None

    def num_left(self, pool: BlockPool) -> int:
        """Lent blocks that nobody has got since."""
        return int(np.count_nonzero(self._left(pool)))

    def left(self, pool: BlockPool) -> Blocks:
        """Lent blocks that nobody has got since, in the order in which they are to be taken."""
        return self.blocks[self._left(pool)]

    def renew(
        self, pool: BlockPool, num_rows: int, num_output_tokens: int, block_size: int, now: float
    ) -> Blocks | None:
        """The blocks of a new loan; None: the old one will do. To be called a few times a second. `num_rows` requests
        run; `num_output_tokens` is what the worker has made in all."""
        self._measure(num_output_tokens, now)
        if not num_rows:
            return None
        needed = math.ceil(self.rate * 2 * LOAN_S / block_size) + num_rows
        wanted = min(needed, pool.num_available)
        if 2 * self.num_left(pool) >= wanted:
            return None
        self.blocks = pool.next_blocks(wanted)
        self._generations = pool.generations[self.blocks]
        return self.blocks

    def _measure(self, num_output_tokens: int, now: float) -> None:
        if self._looked_at is not None and now > self._looked_at:
            rate = (num_output_tokens - self._counted) / (now - self._looked_at)
            self.rate = max(rate, KEPT_RATE * self.rate)
        self._counted, self._looked_at = num_output_tokens, now

    def _left(self, pool: BlockPool) -> NDArray[np.bool_]:
        blocks = self.blocks
        left: NDArray[np.bool_] = (pool.generations[blocks] == self._generations) & (
            pool.ref_counts[blocks] == 0
        )
        return left
