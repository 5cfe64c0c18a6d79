"""What a model's recurrent layers keep of a sequence, whatever its length."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class StateShape:
    """A tensor that a layer keeps of each sequence."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """Bytes for one sequence."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class LayerState:
    """What one layer keeps of each sequence."""

    conv: StateShape
    """`[channels, kernel]`: the last inputs of its convolution, in the model's dtype."""
    recurrent: StateShape | None
    """`[heads, ...]` of a delta net or a state space, in float32; None: the layer is a convolution alone."""

    @property
    def parts(self) -> tuple[StateShape, ...]:
        """All that there are."""
        return (self.conv,) if self.recurrent is None else (self.conv, self.recurrent)


@dataclass(frozen=True)
class StateLayout:
    """What all layers of a model keep of each sequence."""

    layers: dict[int, LayerState] = field(default_factory=dict)
    """By the layer's number; layers that keep nothing, or keys and values, are missing."""

    def __bool__(self) -> bool:
        return bool(self.layers)

    @property
    def bytes_per_row(self) -> int:
        """Bytes of the state of one sequence, in one version."""
        return sum(part.num_bytes for layer in self.layers.values() for part in layer.parts)

    def bytes_of_drafts(self, num_drafts: int, width: int) -> int:
        """Bytes of what so many drafts give to all layers, `width` numbers each."""
        return sum(num_drafts * width * layer.conv.dtype.itemsize for layer in self.layers.values())
