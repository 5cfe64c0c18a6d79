"""How much a model is to think, as clients say it, in the words of its template."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from frontend_svc.templates.conversation import Conversation
from signalbox.errors import UnsupportedError

THINKING = ("enable_thinking", "thinking")
"""What templates call the switch."""
EFFORT = "reasoning_effort"
_GIVEN_BY_US = {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}


def fit_variables(conversation: Conversation, known: Collection[str]) -> dict[str, Any]:
    """The variables for a template that reads those of `known`.

    An effort goes to a template that has only the switch as on, or as off for "none"; the switch is known by either
    name. Raises UnsupportedError for a variable that the template does not read, unless it says what happens anyway.
    """
    fitted: dict[str, Any] = {}
    for name, value in conversation.variables.items():
        field = conversation.variables_path.get(name, f"chat_template_kwargs.{name}")
        if name in _GIVEN_BY_US:
            raise UnsupportedError(f"{field} is a field of the request", field=field)
        if name in known:
            fitted[name] = value
        elif name in (EFFORT, *THINKING):
            fitted |= _switch(name, value, known, conversation.variables, field)
        elif value is not None:
            raise UnsupportedError(f"{field}: the model's chat template does not read {name}", field=field)
    return _fit_wishes(conversation.wishes, known) | fitted


def _fit_wishes(wishes: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    fitted: dict[str, Any] = {}
    for name, value in wishes.items():
        if name in known:
            fitted[name] = value
        elif name in THINKING:
            fitted |= {other: value for other in THINKING if other in known}
    return fitted


def _switch(
    name: str, value: Any, known: Collection[str], variables: Mapping[str, Any], field: str
) -> dict[str, Any]:
    """`name` under the other names of the switch."""
    is_on = value not in (None, False, "none")
    switches = [other for other in THINKING if other in known]
    if switches:
        return {other: is_on for other in switches if other not in variables} if value is not None else {}
    if is_on:
        raise UnsupportedError(f"{field}: the model's chat template has no switch for thinking", field=field)
    return {}
