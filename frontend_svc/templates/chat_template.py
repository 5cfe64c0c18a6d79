"""A model's chat template, which is code from a file: rendered in a sandbox, to a length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import jinja2
from jinja2.exceptions import SecurityError
from jinja2.meta import find_undeclared_variables

from frontend_svc.templates.conversation import Plain
from frontend_svc.templates.environment import Now, make_environment
from signalbox.errors import InvalidRequestError, StartupError

MAX_CHARS = 16 << 20
"""Length of a rendered prompt, where nobody says otherwise."""
CONTINUE_MARK = "HERE-THE-FINAL-MESSAGE-GOES-ON "
"""Stands for a moment at the end of the message to be continued. The space tells whether the template trims."""


class ChatTemplate:
    """One template, and the special tokens that it may name."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], now: Now = datetime.now) -> None:
        """Raises StartupError when `source` is not a template."""
        self.source = source
        environment = make_environment(now)
        try:
            self.tree = environment.parse(source)
            """Syntax of the template."""
            self._template = environment.from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise StartupError(f"the chat template is broken: {error}") from None
        self._special_tokens = dict(special_tokens)

    @cached_property
    def variables(self) -> frozenset[str]:
        """Names that the template reads and does not set itself."""
        return frozenset(find_undeclared_variables(self.tree))

    @property
    def takes_tools(self) -> bool:
        """The template has a place for tools."""
        return "tools" in self.variables

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        documents: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] | None = None,
        *,
        add_generation_prompt: bool = True,
        max_chars: int = MAX_CHARS,
        field: str = "messages",
    ) -> str:
        """The prompt. Messages are handed over as they are.

        Raises InvalidRequestError when the template refuses them, or writes more than `max_chars` characters.
        """
        told = self._special_tokens | dict(variables or {})
        told |= {
            "messages": messages,
            "tools": tools or None,
            "documents": documents or None,
            "add_generation_prompt": add_generation_prompt,
        }
        pieces, num_chars = [], 0
        try:
            for piece in self._template.generate(told):
                num_chars += len(piece)
                if num_chars > max_chars:
                    break
                pieces.append(piece)
        except SecurityError as error:
            raise InvalidRequestError(
                f"the model's chat template is at fault, not the messages: {error} "
                "Another template can be given by --chat-template",
                field=field,
            ) from None
        except Exception as error:  # whatever the template's code does wrong
            raise InvalidRequestError(
                f"the model's chat template refuses the messages: {error}", field=field
            ) from None
        if num_chars > max_chars:
            raise InvalidRequestError(
                f"the model's chat template makes more than {max_chars} characters of the messages",
                field=field,
            )
        return "".join(pieces)

    def continue_final(self, messages: Sequence[Plain], *, field: str = "messages", **rest: Any) -> str:
        """The prompt up to the end of the last message's content; arguments as of `render`."""
        *others, final = messages
        text, marked = _mark(final, f"{field}[{len(others)}].content")
        prompt = self.render([*others, marked], add_generation_prompt=False, field=field, **rest)
        end = prompt.rfind(CONTINUE_MARK.rstrip())
        if end < 0 or text.strip() not in prompt:
            raise InvalidRequestError(
                "continue_final_message: the chat template does not write the last message out",
                field="continue_final_message",
            )
        trims = prompt[end : end + len(CONTINUE_MARK)] != CONTINUE_MARK
        return prompt[:end].rstrip() if trims else prompt[:end]


def _mark(message: Plain, field: str) -> tuple[str, Plain]:
    """The text to be continued, and the message with the mark behind it."""
    content = message.get("content")
    if isinstance(content, str):
        return content, message | {"content": content + CONTINUE_MARK}
    parts = list(content or ())
    for index in reversed(range(len(parts))):
        if "text" in parts[index]:
            text = parts[index]["text"]
            parts[index] = parts[index] | {"text": text + CONTINUE_MARK}
            return text, message | {"content": parts}
    raise InvalidRequestError("continue_final_message needs text in the last message", field=field)
