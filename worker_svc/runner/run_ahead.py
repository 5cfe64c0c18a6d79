"""When a step may be launched before the tokens of the one before it are on the host, and what becomes of overruns.

The rule of the design: a request that has ended may be overrun by one step; such a row writes only inside its granted
blocks, and is never sealed, counted or sent. Pure functions of columns, R decode rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from worker_svc.core.batch import Batch
from worker_svc.core.sampling import NO_LOGPROBS

I32 = NDArray[np.int32]
Mask = NDArray[np.bool_]


def samples_on_device(batch: Batch) -> Mask:
    """[N] true where the token follows from logits, parameters and a random number alone, and only it is wanted."""
    slots = batch.slots[batch.sample_rows]
    plain = ~batch.sampling.adjusts[slots] & (batch.sampling.num_logprobs[slots] == NO_LOGPROBS)
    return np.asarray(plain if batch.masks is None else plain & (batch.mask_index < 0))


def one_sample_per_row(batch: Batch) -> bool:
    """True if no row has drafts, whose fate the host decides."""
    return len(np.unique(batch.sample_rows)) == len(batch.sample_rows)


def certainly_ended(num_tokens: I32, num_in_flight: I32, limit: I32) -> Mask:
    """[R] true where the tokens in flight reach the request's limit: it takes no part in the next step."""
    return np.asarray(num_tokens + num_in_flight >= limit)


def is_granted(positions: I32, num_blocks: I32, block_size: int) -> Mask:
    """[R] true where the position that a row writes lies in its `num_blocks` granted blocks."""
    return np.asarray(positions < num_blocks * block_size)


def may_run_ahead(in_flight: Mask, granted: Mask, needs_host_tokens: Mask) -> bool:
    """Whether a step may be launched now; else the step before it has to be collected first.

    A step has to run all its rows, so one row that waits makes the step wait: one in flight whose next token the host
    has to choose with its history, or whose block might be somebody else's.
    """
    return bool((~in_flight | (granted & ~needs_host_tokens)).all())


def overrun_rows(slots: I32, in_flight: Mask, ended: Mask) -> NDArray[np.int64]:
    """Rows of a launched step to be dropped: their request turned out to have `ended` `[num_slots]` before it."""
    return np.flatnonzero(in_flight & ended[slots])
