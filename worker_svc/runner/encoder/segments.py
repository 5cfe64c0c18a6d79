"""Attention of an encoder over prompts that lie one behind the other, so that none is padded.

The model calls `segment_attention` in each layer, as the implementation "signalbox_segments". Where each prompt begins
is in the `Segments` that `running` made current.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

IMPLEMENTATION = "signalbox_segments"


class Group(NamedTuple):
    """Neighbours of one length, which attend in one call."""

    start: int
    """Number of the first token."""
    num_prompts: int
    length: int


@dataclass
class Segments:
    """How long each prompt is, in the order in which they lie."""

    lengths: Sequence[int]
    layers_called: set[int] = field(default_factory=set)

    def groups(self) -> Iterator[Group]:
        """All prompts, those of one length that lie together in one group."""
        start = 0
        for length, run in groupby(self.lengths):
            count = len(list(run))
            yield Group(start, count, length)
            start += count * length


_current: ContextVar[Segments] = ContextVar("signalbox_segments")


@contextlib.contextmanager
def running(segments: Segments) -> Iterator[None]:
    """Makes `segments` those that the model's attention layers work on."""
    token = _current.set(segments)
    try:
        yield
    finally:
        _current.reset(token)


def segment_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """An attention function as transformers calls it: each token attends to all of its prompt, or to those nearer than
    `sliding_window`. `query`, `key` and `value` are `[1, H, T, D]`. Returns `[1, T, H, D]`.

    The model makes no mask for an implementation that it does not know.
    """
    assert attention_mask is None
    segments = _current.get()
    segments.layers_called.add(id(module))
    heads, size = query.shape[1], query.shape[3]
    out = query.new_empty((query.shape[2], heads, value.shape[3]))
    for group in segments.groups():
        end = group.start + group.num_prompts * group.length

        def part(states: torch.Tensor, group: Group = group, end: int = end) -> torch.Tensor:
            """`[N, H, length, D]` of its N prompts."""
            rows = states[0, :, group.start : end]
            return rows.reshape(heads, group.num_prompts, group.length, -1).transpose(0, 1)

        attended = scaled_dot_product_attention(
            part(query),
            part(key),
            part(value),
            attn_mask=_window(group.length, sliding_window, query.device),
            scale=size**-0.5 if scaling is None else scaling,
        )
        out[group.start : end] = attended.transpose(1, 2).reshape(-1, heads, value.shape[3])
    return out[None], None


def _window(length: int, sliding_window: int | None, device: torch.device) -> torch.Tensor | None:
    """`[length, length]` whether a token sees another; None: all see all."""
    if sliding_window is None or length <= sliding_window:
        return None
    positions = torch.arange(length, device=device)
    return (positions[:, None] - positions).abs() < sliding_window


AttentionInterface.register(IMPLEMENTATION, segment_attention)
