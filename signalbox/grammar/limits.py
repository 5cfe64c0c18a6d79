"""Limits on the work of a mask, counted by the grammar library: the same output reaches those of the parser at the same
token, on any machine, with drafts or without. What the lexer did for other outputs in a form counts as well (G9)."""

from __future__ import annotations

from dataclasses import dataclass

LIGHT_SHARE = 8
"""A mask is light that needs at most this part, one of eight, of `step_max_items`."""


@dataclass(frozen=True)
class FormLimits:
    """What the masks of one request may take. The defaults are those of `FormSettings`, which says why."""

    step_max_items: int = 3000
    """Items of the parser that one mask, or one token taken, may make."""
    step_lexer_fuel: int = 200_000
    """Work of the lexer on states that it has not met before, in one mask or token."""
    max_items_in_row: int = 2000
    """Items of the parser at one byte."""
    max_heavy_masks: int = 16_384
    """Masks from the first one on that is not light."""

    @property
    def light_items(self) -> int:
        """`step_max_items` of a mask that is light."""
        return max(self.step_max_items // LIGHT_SHARE, 1)
