"""Recurrent layers of which all that lies between two products is one native call for all rows."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from worker_svc.core.requests.state_versions import NOTHING
from worker_svc.runner.attention import attention
from worker_svc.runner.cpu.fused import TOLERANCES, NotFusableError
from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.native.structs import StateCall
from worker_svc.runner.cpu.packed_linear import PackingError, relative_error
from worker_svc.runner.cpu.recurrent.side_by_side import SideBySide, one_product
from worker_svc.runner.recurrent.layers import RecurrentForward
from worker_svc.runner.recurrent.layout import LayerState, StateLayout
from worker_svc.runner.recurrent.rows import DecodeStates, StateRows
from worker_svc.runner.recurrent.store import StateStore

logger = logging.getLogger(__name__)

KERNELS = (2, 3, 4)
"""Lengths of convolutions that the kernels take."""
STATE_FIELDS = ("inputs", "states")
"""What calls name the parts of a layer's states; not each call takes both."""
CHECKED_LENGTHS = (1, 5)
"""Tokens of the rows that are compared: one that goes on from a state, and others that begin."""


@dataclass(frozen=True)
class Mixer:
    """What lies between the products of a layer."""

    call: StateCall
    """The call, but for what changes with each batch."""
    width: int
    """Numbers that it gives for a token."""
    tensors: list[torch.Tensor]
    """What the call points to."""


class NativeLayer(nn.Module):
    """A recurrent layer. What a token gives does not depend on the other rows, nor on where its sequence was cut."""

    kind: str
    """Which of the kernels it is."""

    def __init__(
        self,
        layer: Any,
        kernels: Kernels,
        inputs: SideBySide,
        out: nn.Module,
        mixer: Mixer,
        **between: nn.Module,
    ) -> None:
        """Takes the place of `layer`, which was served by `RecurrentForward`: `mixer` between its products `inputs` and
        `out`, with what other products there are `between` these. NotFusableError if it gives other results."""
        super().__init__()
        for name, module in between.items():
            self.add_module(name, module)
        served: RecurrentForward = layer.forward
        self.layer_idx = served.layer_idx
        self._kernels, self._mixer = kernels, mixer
        self.in_proj: nn.Module = inputs
        self.out_proj = out
        assert served.kept is not None, "the model has run"
        compare(served, self, served.kept, int(inputs[0].in_features))  # type: ignore[arg-type]
        try:
            self.in_proj = one_product(inputs, kernels)
        except PackingError as error:
            logger.info("products of layer %d are not joined: %s", self.layer_idx, error)

    def forward(self, hidden_states: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """`[1, T, H]` of the flattened batch; the same. Each row goes on from its source and leaves its state in its
        target."""
        batch = attention.current()
        assert batch.states is not None, "the model has recurrent layers"
        assert not isinstance(batch.states, DecodeStates), "such rows are a GPU's"
        batch.layers_called.add(self.layer_idx)
        return batch.states.advance(self.layer_idx, self.run, hidden_states)

    def run(self, hidden_states: torch.Tensor, rows: StateRows) -> torch.Tensor:
        """`[1, T, H]` of these rows."""
        out: torch.Tensor = self.out_proj(self.mix(self.in_proj(hidden_states[0]), rows)[None])
        return out

    def mix(self, projected: torch.Tensor, rows: StateRows) -> torch.Tensor:
        """`[T, width]` for what the products ahead give `[T, ...]`. Writes the rows' targets."""
        out = projected.new_empty(len(projected), self._mixer.width)
        call = self._mixer.call
        call.projected, call.out = projected.data_ptr(), out.data_ptr()
        self.run_rows(self.kind, call, rows)
        rows.keep_ends(rows.store.layers[self.layer_idx])
        return out

    def run_rows(self, kind: str, call: StateCall, rows: StateRows) -> None:
        """Runs a call for these rows, from the states that they read to those that they write."""
        for name, part in zip(STATE_FIELDS, rows.store.layers[self.layer_idx], strict=False):
            if hasattr(call, name):
                setattr(call, name, part.data_ptr())
        for run in rows.runs:
            columns = [np.ascontiguousarray(each) for each in run]
            call.query_starts, call.sources, call.targets = (column.ctypes.data for column in columns)
            call.num_rows = len(columns[1])
            self._kernels.run_states(kind, call)


class Advancing(Protocol):
    """A recurrent layer as it is served."""

    kind: str

    def run(self, hidden_states: torch.Tensor, rows: StateRows) -> torch.Tensor:
        """`[1, T, H]` of these rows."""


def compare(
    served: RecurrentForward,
    ours: Advancing,
    kept: LayerState,
    hidden_size: int,
    device: str | torch.device = "cpu",
) -> None:
    """NotFusableError if outputs or states differ by more than rounding, in a row that goes on or one that begins."""
    generator = torch.Generator().manual_seed(hidden_size)
    dtype = kept.conv.dtype
    hidden = torch.randn(1, sum(CHECKED_LENGTHS), hidden_size, generator=generator).to(device, dtype)
    starts = np.cumsum((0, *CHECKED_LENGTHS)).astype(np.int32)
    stores = [
        StateStore(StateLayout({served.layer_idx: kept}), num_slots=2, num_versions=2, device=device)
        for _ in range(2)
    ]
    parts = zip(*(store.layers[served.layer_idx] for store in stores), strict=True)
    for one, other in parts:
        one.copy_(torch.randn(one.shape, generator=generator) * 0.3)
        other.copy_(one)
    rows = [
        StateRows(store, starts, np.array([0, NOTHING], np.int32), np.array([1, 3], np.int32))
        for store in stores
    ]
    results = zip(
        (served.run(hidden, rows[0]), *stores[0].layers[served.layer_idx]),
        (ours.run(hidden, rows[1]), *stores[1].layers[served.layer_idx]),
        strict=True,
    )
    for expected, actual in results:
        if not relative_error(actual, expected) <= 2 * TOLERANCES[dtype]:
            raise NotFusableError(f"our {ours.kind.replace('_', ' ')} gives other results")
