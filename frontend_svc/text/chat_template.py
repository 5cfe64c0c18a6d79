"""Renders a model's chat template, which is code from a file, in jinja's sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

from signalbox.errors import InvalidRequestError, StartupError


class ChatTemplate:
    """One template and the special tokens that it may name."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Raises StartupError when `source` is not a template."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
        try:
            self._template = environment.from_string(source)
            self.takes_tools = "tools" in find_undeclared_variables(environment.parse(source))
            """The template has a place for tools."""
        except jinja2.TemplateError as error:
            raise StartupError(f"the model's chat template is broken: {error}") from None
        self._special_tokens = dict(special_tokens)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        add_generation_prompt: bool = True,
        field: str = "messages",
    ) -> str:
        """The prompt for the assistant's next message.

        Raises InvalidRequestError when the template refuses the messages.
        """
        try:
            return self._template.render(
                messages=messages,
                add_generation_prompt=add_generation_prompt,
                tools=tools or None,
                documents=None,
                **self._special_tokens,
            )
        except Exception as error:  # whatever the template's code does wrong
            raise InvalidRequestError(
                f"the model's chat template refuses the messages: {error}", field=field
            ) from None


def _raise_exception(message: str) -> NoReturn:
    """Templates call it, e.g. when roles do not alternate."""
    raise jinja2.TemplateError(message)


def _to_json(value: Any, indent: int | None = None) -> str:
    """Unlike jinja's own filter this one does not escape for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
