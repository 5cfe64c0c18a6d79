"""What a kernel is told of the rows whose states it moves on, on the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from worker_svc.core.batch import I32
from worker_svc.runner.cuda.transfers import upload


@dataclass(frozen=True)
class StateColumns:
    """R rows that run at once, with the query tokens from `query_starts[0]` on. All are int32."""

    query_starts: torch.Tensor
    """[R + 1] number of each row's first query token in the forward; last, where they end."""
    sources: torch.Tensor
    """[R] rows of the store with the states ahead of the query tokens; negative: the sequence begins."""
    targets: torch.Tensor
    """[R] rows of the store for the states behind the query tokens."""
    token_rows: torch.Tensor
    """[T'] row of each query token."""


def upload_columns(runs: list[tuple[I32, I32, I32]], device: torch.device) -> list[StateColumns]:
    """Runs of (query_starts, sources, targets), in one transfer that nobody waits for."""
    parts = [
        part
        for starts, sources, targets in runs
        for part in (starts, sources, targets, np.repeat(np.arange(len(sources)), np.diff(starts)))
    ]
    sent = upload([np.asarray(part, np.int32) for part in parts], device)
    return [StateColumns(*sent[first : first + 4]) for first in range(0, len(sent), 4)]
