"""What queries of each layer see: by the masks that transformers would make for the layer, and on the paged cache.

Masks of transformers are functions of two positions, so they can be asked about any position without computing a prompt
of that length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionMaskInterface

Rule = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""A mask function of transformers: batch, head, query position and KV position to whether the query sees it."""


@dataclass(frozen=True)
class Visibility:
    """What a layer's attention was called with."""

    window: int | None
    """Sliding window that the attention function is told of; None: none."""
    chunk: int | None
    """Positions of a chunk that queries see at most; None: all."""
    rule: Rule | None
    """The mask that transformers would make; None: none, or one that the model's own code has changed."""

    def first_seen(self, position: int) -> int:
        """The first position that a query at `position` sees on the paged cache."""
        first = 0 if self.window is None else max(0, position - self.window + 1)
        return first if self.chunk is None else max(first, position // self.chunk * self.chunk)

    def first_seen_by_mask(self, position: int) -> int | None:
        """The first position that it sees by the mask; -1 if that leaves out positions in between; None if there is no
        mask that can tell."""
        if self.rule is None:
            return None
        zero = torch.zeros((), dtype=torch.int64)
        places = torch.arange(position + 1)
        try:
            seen = self.rule(zero, zero, torch.tensor(position), places).expand(position + 1)
        except Exception:  # a function that looks up tensors of the forward's length
            return None
        found = int(seen.sum())
        return position + 1 - found if found and bool(seen[-found:].all()) else -1


class MaskNotes:
    """Stands for the masks of a forward: each is a tensor without meaning, by whose memory its rule is found again."""

    def __init__(self) -> None:
        self._rules: dict[int, tuple[Rule, torch.Tensor]] = {}

    def clear(self) -> None:
        """Forgets all rules."""
        self._rules.clear()

    def note(self, *, mask_function: Rule, **_: Any) -> torch.Tensor:
        """A mask function's place in transformers, which hands it over with much else. `[1, 1, 1, 1]`: a forward whose
        masks are noted has one token."""
        mask = torch.zeros(1, 1, 1, 1)
        self._rules[mask.data_ptr()] = mask_function, mask
        return mask

    def rule_of(self, mask: torch.Tensor | None) -> Rule | None:
        """The rule of a mask that `note` gave, or of a part of it; None: it is another."""
        found = None if mask is None else self._rules.get(mask.data_ptr())
        return None if found is None else found[0]


NOTES = MaskNotes()


def note_masks(implementation: str) -> None:
    """Has transformers note masks for an attention implementation, where it would make none."""
    AttentionMaskInterface.register(implementation, NOTES.note)
