"""A step between `apply` and `commit`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from signalbox.protocol.parts.orders import Orders
from worker_svc.core.batch import Batch, BlockCopy, StateCopy
from worker_svc.core.parts.part import Part
from worker_svc.core.step import I32, I64, CheckpointOrder, SideCopies, SlotStart, StepReport


@dataclass
class RunningStep:
    """What `commit` has to remember of `apply`."""

    report: StepReport
    batch: Batch
    rows: I64
    """[D] slots of all decode rows of the step, ended ones included."""
    chunks: list[SlotStart] = field(default_factory=list)
    """Prefill chunks that run, in the order of the batch's rows."""
    copies: list[BlockCopy] = field(default_factory=list)
    """Block copies to be made before the batch runs."""
    drafts: list[I32] | None = None
    """Per decode row of the batch; None: no row has drafts."""
    refused: list[int] = field(default_factory=list)
    """Slots whose requests were refused before the step, as their frontends know; its report tells the scheduler."""
    failed: list[int] = field(default_factory=list)
    """Slots whose requests failed in the step; its report and its outputs say so."""
    ahead: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    """[R] rows of the batch whose query token a step in flight samples: the host does not know it yet."""
    side_copies: SideCopies | None = None
    """Block copies to be begun behind `copies`, and not to be waited for; None: there are none."""
    begins: list[tuple[Part, Orders]] = field(default_factory=list)
    """Orders that run beside the steps, with their parts; begun after `copies`."""
    state_copies: list[StateCopy] = field(default_factory=list)
    """Copies of recurrent states to be made before the batch runs."""
    checkpoints: list[CheckpointOrder] = field(default_factory=list)
    """States that are to be kept; what became of each is in the report."""
