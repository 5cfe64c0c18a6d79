"""Lets transformers' recurrent layers run a flattened batch, from states that it names to states that it names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from worker_svc.core.requests.state_versions import NOTHING
from worker_svc.runner.attention import attention
from worker_svc.runner.recurrent.carried import CarriedStates
from worker_svc.runner.recurrent.layout import LayerState, StateLayout, StateShape
from worker_svc.runner.recurrent.rows import DecodeStates, StateRows


@dataclass(frozen=True)
class Kind:
    """How transformers' code of a kind of layer is called."""

    cache: str = "cache_params"
    """The name by which it takes a cache."""
    scans_on: bool = True
    """Whether it can scan many tokens from a state that is there; else it takes them one by one."""
    weights_read: tuple[str, ...] = ()
    """Its linear layers whose weights it reads without calling them."""


KINDS = {
    **dict.fromkeys(("Qwen3NextGatedDeltaNet", "Qwen3_5GatedDeltaNet", "Qwen3_5MoeGatedDeltaNet"), Kind()),
    **dict.fromkeys(("BambaMixer", "GraniteMoeHybridMambaLayer", "NemotronHMamba2Mixer"), Kind()),
    "KimiLinearDeltaAttention": Kind(),
    "FalconH1Mixer": Kind(),
    "OlmoHybridGatedDeltaNet": Kind(),
    **dict.fromkeys(("Lfm2ShortConv", "Lfm2MoeShortConv"), Kind(cache="past_key_values")),
    "JambaMambaMixer": Kind(scans_on=False, weights_read=("dt_proj",)),
}
"""By the names of transformers' classes."""


class OwnLinear(nn.Linear):
    """A linear layer that is more to its owner than a call: it is not swapped for a faster one."""


class RecurrentForward:
    """The forward of one recurrent layer, in the place of its own.

    Within a batch each row goes on from its source and leaves its state in its target; without one, all tokens are a
    sequence, and what is kept of it is noted.
    """

    def __init__(self, layer: Any) -> None:
        self.layer_idx = int(layer.layer_idx)
        self._kind = KINDS[type(layer).__name__]
        self._own = layer.forward
        self.kept: LayerState | None = None
        """None: the layer has not run yet."""

    def __call__(self, hidden_states: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """`[1, T, H]` of the flattened batch; the same."""
        batch = attention.current_or_none()
        if batch is None:
            states = CarriedStates()
            out = self._advance(hidden_states, states)
            self.kept = kept_of(states)
            return out
        assert batch.states is not None, "the model has recurrent layers"
        batch.layers_called.add(self.layer_idx)
        return batch.states.advance(self.layer_idx, self.run, hidden_states)

    def run(self, hidden_states: torch.Tensor, rows: StateRows | DecodeStates) -> torch.Tensor:
        """`[1, T, H]` of these rows."""
        stored = rows.store.layers[self.layer_idx]
        out = torch.empty_like(hidden_states)
        if len(rows.steps):
            states = CarriedStates(*(part[rows.step_sources] for part in stored))
            out[0, rows.step_index] = self._advance(hidden_states[0, rows.step_index][:, None], states)[:, 0]
            put(stored, rows.step_targets, states)
        if isinstance(rows, StateRows):
            self._run_scans(hidden_states, out, rows)
        rows.keep_ends(stored)
        return out

    def _run_scans(self, hidden_states: torch.Tensor, out: torch.Tensor, rows: StateRows) -> None:
        """Writes `out` of the rows that run alone."""
        stored = rows.store.layers[self.layer_idx]
        for row, start, _ in rows.scans:
            source = rows.sources[row]
            begins = source == NOTHING
            states = CarriedStates(*(() if begins else (part[source][None].clone() for part in stored)))
            for first, last, target in rows.parts_of(row):
                self._scan(hidden_states, out, (first, last), states, begins=begins and first == start)
                put(stored, slice(target, target + 1), states)

    def _scan(
        self,
        hidden_states: torch.Tensor,
        out: torch.Tensor,
        span: tuple[int, int],
        states: CarriedStates,
        *,
        begins: bool,
    ) -> None:
        """Runs query tokens `[start, end)`, all of one sequence, which `begins` with them or goes on."""
        start, end = span
        width = end - start if begins or self._kind.scans_on else 1
        for first in range(start, end, width):
            tokens = slice(first, first + width)
            out[:, tokens] = self._advance(hidden_states[:, tokens], states)

    def _advance(self, hidden_states: torch.Tensor, states: CarriedStates) -> torch.Tensor:
        """Runs `[B, T, H]`, sequences of one length, and moves their states behind them."""
        out: torch.Tensor = self._own(hidden_states, **{self._kind.cache: states})
        return out


def put(stored: tuple[torch.Tensor, ...], rows: torch.Tensor | slice, states: CarriedStates) -> None:
    """Writes states into such rows of the store."""
    for part, state in zip(stored, states.parts, strict=True):
        part[rows] = state.to(part.dtype)


def kept_of(states: CarriedStates) -> LayerState:
    """What a layer that has run keeps of each sequence. Its recurrent part is float32, whatever the model is in."""
    assert states.conv is not None
    conv = StateShape(tuple(states.conv.shape[1:]), states.conv.dtype)
    if states.recurrent is None:
        return LayerState(conv, None)
    return LayerState(conv, StateShape(tuple(states.recurrent.shape[1:]), torch.float32))


def weights_read(module: nn.Module) -> set[str]:
    """Names of the linear layers of a model whose weights are read without a call: they stay what they are."""
    return {
        f"{name}.{linear}"
        for name, layer in module.named_modules()
        if type(layer).__name__ in KINDS
        for linear in KINDS[type(layer).__name__].weights_read
    }


def serve_recurrent(module: nn.Module) -> list[RecurrentForward]:
    """Puts our forward in the place of that of each recurrent layer. Returns them; none of them where the
    model has no such layer."""
    layers: list[Any] = [layer for layer in module.modules() if type(layer).__name__ in KINDS]
    forwards = [RecurrentForward(layer) for layer in layers]
    for layer, forward in zip(layers, forwards, strict=True):
        layer.forward = forward
    for name in weights_read(module):
        module.get_submodule(name).__class__ = OwnLinear
    return forwards


def layout_of(forwards: list[RecurrentForward]) -> StateLayout:
    """What a model keeps whose layers have all run."""
    kept = {forward.layer_idx: forward.kept for forward in forwards}
    return StateLayout({number: layer for number, layer in kept.items() if layer is not None})
