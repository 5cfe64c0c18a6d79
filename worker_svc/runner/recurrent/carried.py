"""States of a layer on their way through transformers' code, by the interfaces of its caches.

There are two: newer transformers ask for states by `get_conv_state` and `get_recurrent_state`, 5.17 asks
`has_previous_state` and then reads them from the cache's list of layers."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad


class CarriedStates:
    """The states of B sequences of one length, ahead of their tokens; behind them once the layer has run.

    Layers write into these tensors: they are copies of nobody's version.
    """

    def __init__(self, conv: torch.Tensor | None = None, recurrent: torch.Tensor | None = None) -> None:
        """conv `[B, channels, kernel]`, recurrent `[B, heads, ...]`; None: the sequences begin."""
        self.conv, self.recurrent = conv, recurrent

    @property
    def parts(self) -> tuple[torch.Tensor, ...]:
        """The states that the layer has, behind its tokens."""
        assert self.conv is not None
        return (self.conv,) if self.recurrent is None else (self.conv, self.recurrent)

    def get_conv_state(self, *_: Any, **__: Any) -> torch.Tensor | None:
        """The convolution's last inputs `[B, channels, kernel]`; None: the sequences begin."""
        return self.conv

    def get_recurrent_state(self, *_: Any, **__: Any) -> torch.Tensor | None:
        """The recurrent state `[B, heads, ...]`; None: there is none yet, or the layer has none."""
        return self.recurrent

    def is_recording_past(self, *_: Any) -> bool:
        """Whether states behind each token are kept: no."""
        return False

    def has_previous_state(self, *_: Any, **__: Any) -> bool:
        """False: the sequences begin. (transformers 5.17)"""
        return self.conv is not None

    @property
    def layers(self) -> _EveryLayer:
        """By any layer's number: these states. (transformers 5.17)"""
        return _EveryLayer(self)

    def update_conv_state(
        self, inputs: torch.Tensor, *_: Any, conv_kernel_size: int, **__: Any
    ) -> torch.Tensor:
        """Takes the convolution's new inputs `[B, channels, T]`; returns them behind those that were carried."""
        whole = inputs if self.conv is None else torch.cat((self.conv, inputs), dim=-1)
        self.conv = pad(whole, (max(0, conv_kernel_size - whole.shape[-1]), 0))[..., -conv_kernel_size:]
        return whole

    def update_recurrent_state(self, state: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """Takes the state behind all tokens."""
        self.recurrent = state
        return state


class _EveryLayer:
    """The list of layers of a transformers 5.17 cache whose layers all have the same states."""

    def __init__(self, states: CarriedStates) -> None:
        self._layer = _Layer(states)

    def __getitem__(self, _: int) -> _Layer:
        return self._layer


class _Layer:
    """One layer of a transformers 5.17 cache. Tensors are those of the carried states, which are written in place."""

    record_past = False
    """Whether states after each token are kept."""

    def __init__(self, states: CarriedStates) -> None:
        self.conv_states, self.recurrent_states = (states.conv,), (states.recurrent,)
