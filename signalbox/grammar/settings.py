"""The settings of forms. Those that frontends and workers share are one class: a form that passes can be followed."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from signalbox.grammar.limits import FormLimits
from signalbox.runtime.config import Settings


class FormSettings(Settings):
    """Limits on forms. They are to be the same at all frontends and workers of a ring."""

    form_step_max_items: Annotated[int, Field(ge=100, le=1_000_000)] = FormLimits.step_max_items
    """Most items that the parser of a form may make for one mask; a form that needs more is refused, and a request that
    comes to need more ends there. 200 public JSON schemas need at most some 150."""
    form_step_lexer_fuel: Annotated[int, Field(ge=1000, le=10_000_000)] = FormLimits.step_lexer_fuel
    """Most work of a form's lexer for one mask, on states that no output in this form has met before."""
    form_max_items_in_row: Annotated[int, Field(ge=100, le=1_000_000)] = FormLimits.max_items_in_row
    """Most items of a form's parser at one byte of the output."""

    @property
    def form_limits(self) -> FormLimits:
        """The limits as the grammar library is told them."""
        return FormLimits(self.form_step_max_items, self.form_step_lexer_fuel, self.form_max_items_in_row)


class FollowedFormSettings(FormSettings):
    """The settings of a worker, which follows forms to their end."""

    form_max_heavy_masks: Annotated[int, Field(ge=1)] = FormLimits.max_heavy_masks
    """Tokens that a request may go on for, from the first mask on that took more than an eighth of
    form_step_max_items."""

    @property
    def form_limits(self) -> FormLimits:
        """All of the limits."""
        return replace(super().form_limits, max_heavy_masks=self.form_max_heavy_masks)
