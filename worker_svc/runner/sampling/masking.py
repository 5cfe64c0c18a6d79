"""Tokens that a form forbids, taken out of the logits."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from worker_svc.core.batch import Batch


def mask_logits(scores: torch.Tensor, batch: Batch, samples: NDArray[np.int64]) -> None:
    """Sets to -inf in place what the forms forbid in `scores` `[n, V]`, which belong to `samples` `[n]`.

    Waits until the batch's masks have been filled.
    """
    if batch.masks is None:
        return
    index = batch.mask_index[samples]
    rows = np.flatnonzero(index >= 0)
    if not len(rows):
        return
    bits = batch.masks.bits()[index[rows]].astype("<u4", copy=False)
    # What lies beyond the masks is padded with zeros: columns without a token.
    allowed = np.unpackbits(bits.view(np.uint8), axis=1, count=scores.shape[1], bitorder="little")
    forbidden = torch.from_numpy(allowed == 0).to(scores.device)
    if len(rows) == len(scores):
        scores.masked_fill_(forbidden, -torch.inf)
    else:
        picked = torch.from_numpy(rows).to(scores.device)
        scores[picked] = scores[picked].masked_fill_(forbidden, -torch.inf)
