"""Which rows of a step have numbers. A NaN, or an infinity, at any position that a row reads spreads to its last hidden
state, so that is all that is looked at: one sum over it, and the logit of each token that was chosen."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

I32 = NDArray[np.int32]
Mask = NDArray[np.bool_]
NO_ROWS = np.empty(0, np.int32)


def state_sums(states: torch.Tensor) -> torch.Tensor:
    """[R] float32 sums of `states` `[R, H]`: not finite where an element is not."""
    return states.sum(-1, dtype=torch.float32)


def chosen_logits(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """[N] float32 logits of `tokens` `[N]`: below infinity where they are numbers, or were masked."""
    return logits.gather(1, tokens[:, None])[:, 0].float()


def bad_rows(states: Mask, choices: Mask, sample_rows: I32) -> I32:
    """[B] rows that are not to be trusted; `states` `[R]` and `choices` `[N]` are true where they are numbers, and
    `sample_rows` `[N]` whose the choices are."""
    if states.all() and choices.all():
        return NO_ROWS
    bad = ~states
    bad[sample_rows[~choices]] = True
    return np.flatnonzero(bad).astype(np.int32)


def with_bad_readings(rows: I32, read: dict[int, NDArray[np.float32]]) -> I32:
    """`rows`, and those of which something that was `read` is not finite."""
    bad = [row for row, values in read.items() if not np.isfinite(values).all()]
    return np.union1d(rows, bad).astype(np.int32) if bad else rows
