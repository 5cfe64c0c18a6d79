"""What the kernel that chooses tokens is told: one row of scores, limits and a random number per sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from worker_svc.runner.cpu.native.structs import ChoiceCall


@dataclass(frozen=True)
class Choices:
    """What the choosing kernel is told of n samples."""

    rows: NDArray[np.int64]
    """[n] row of the scores that each sample is drawn from."""
    temperature: NDArray[np.float32]
    """[n] 0: the best token, the first of equals"""
    top_k: NDArray[np.int64]
    """[n] between 1 and V; V keeps all tokens"""
    top_p: NDArray[np.float64]
    """[n] share of probability to draw from."""
    min_p: NDArray[np.float32]
    """[n] least probability, as a share of the best one's."""
    numbers: NDArray[np.float64]
    """[n] in [0, 1), for those that are drawn"""
    masks: NDArray[np.uint32]
    """[M, W] bit t % 32 of word t // 32 says whether token t is allowed; tokens behind them are not"""
    mask_index: NDArray[np.int32]
    """[n] of the masks; -1: all tokens are allowed"""


def choice_call(scores: torch.Tensor, choices: Choices, tokens: NDArray[np.int64]) -> ChoiceCall:
    """The call that writes `tokens` `[n]` for `scores` `[any, V]`. The arrays have to outlive it."""
    masks = choices.masks
    arrays = (
        *(choices.rows, masks, choices.mask_index, choices.temperature, choices.top_k),
        *(choices.top_p, choices.min_p, choices.numbers, tokens),
    )
    for array in arrays:
        if not array.flags.c_contiguous:
            raise ValueError("the kernel reads arrays that lie in one piece")
    return ChoiceCall(
        scores.data_ptr(),
        *(array.ctypes.data for array in arrays),
        len(choices.rows),
        scores.shape[1],
        masks.shape[1],
        scores.dtype == torch.bfloat16,
        torch.get_num_threads(),
    )
