"""What is known of a draft model's KV follows the blocks, whoever holds them."""

from __future__ import annotations

import numpy as np

from worker_svc.core.batch import BlockCopy
from worker_svc.core.drafts.coverage import DraftCoverage

TABLE = np.array([5, 2, 7], np.int32)


def covered(coverage: DraftCoverage, *blocks: int) -> int:
    return int(coverage.num_covered(np.array([blocks], np.int32))[0])


def test_positions_count_up_to_the_first_gap() -> None:
    """D6."""
    coverage = DraftCoverage(8, 0, block_size=4)
    assert covered(coverage, 5, 2, 7) == 0
    coverage.cover(TABLE, 0, 6)
    assert covered(coverage, 5, 2, 7) == 6
    coverage.cover(TABLE, 6, 12)
    assert covered(coverage, 5, 2, 7) == 12
    coverage.renew([2])
    assert covered(coverage, 5, 2, 7) == 4


def test_who_shares_a_block_shares_what_is_known_of_it() -> None:
    coverage = DraftCoverage(8, 0, block_size=4)
    coverage.cover(TABLE, 0, 8)
    assert covered(coverage, 5, 3, 1) == 4


def test_a_shorter_holder_takes_nothing_back() -> None:
    coverage = DraftCoverage(8, 0, block_size=4)
    coverage.cover(TABLE, 0, 4)
    coverage.cover(TABLE, 0, 2)
    assert covered(coverage, 5, 2, 7) == 4


def test_a_copy_takes_it_along() -> None:
    """D6: to the host before the block is given away, and back into another one."""
    coverage = DraftCoverage(8, 3, block_size=4)
    coverage.cover(TABLE, 0, 4)
    coverage.copy(BlockCopy(5, False, 1, True))
    coverage.renew([5])
    assert covered(coverage, 5) == 0
    coverage.copy(BlockCopy(1, True, 6, False))
    assert covered(coverage, 6, 2) == 4
