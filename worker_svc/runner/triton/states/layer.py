"""Recurrent layers whose states Triton's kernels move on, all rows at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from worker_svc.runner.attention import attention
from worker_svc.runner.cpu.recurrent.native_layer import compare
from worker_svc.runner.recurrent.layers import RecurrentForward
from worker_svc.runner.recurrent.rows import DecodeStates, StateRows


class TritonLayer(nn.Module):
    """A recurrent layer. What a token gives depends neither on other rows nor on where its sequence was cut, but for
    the products around the kernels."""

    out_proj: nn.Module
    kind: str
    """What kind of layer it is, for people to read."""

    def __init__(self, layer: Any) -> None:
        """Takes the place of `layer`, which was served by `RecurrentForward`."""
        super().__init__()
        served: RecurrentForward = layer.forward
        self.layer_idx = served.layer_idx
        self._served: RecurrentForward | None = served

    def check(self) -> None:
        """NotFusableError if it gives other results than the layer whose place it takes, which is then forgotten."""
        served, self._served = self._served, None
        assert served is not None and served.kept is not None, "the model has run"
        weight: Any = self.out_proj.weight
        compare(served, self, served.kept, len(weight), weight.device)

    def forward(self, hidden_states: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """`[1, T, H]` of the flattened batch; the same. Each row goes on from its source and leaves its state in its
        target."""
        batch = attention.current()
        assert batch.states is not None, "the model has recurrent layers"
        batch.layers_called.add(self.layer_idx)
        return batch.states.advance(self.layer_idx, self.run, hidden_states)

    def run(self, hidden_states: torch.Tensor, rows: StateRows | DecodeStates) -> torch.Tensor:
        """`[1, T, H]` of these rows."""
        stored = rows.store.layers[self.layer_idx]
        out = self.mix(hidden_states[0], stored, rows)
        rows.keep_ends(stored)
        return out[None]

    def mix(
        self, hidden: torch.Tensor, stored: tuple[torch.Tensor, ...], rows: StateRows | DecodeStates
    ) -> torch.Tensor:
        """`[T, H]` for `[T, H]`. Of `stored`, the layer's parts of the store, the rows' targets are written."""
        raise NotImplementedError
