"""Applies the edits that a request asks of its history, each measured by the prompts before and behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from frontend_svc.api.anthropic.blocks import InputMessage
from frontend_svc.api.anthropic.body import CountBody
from frontend_svc.api.anthropic.context_edits import OtherEdit
from frontend_svc.api.openai.chat_prompt import render_chat
from frontend_svc.templates.prompts import ChatPrompts
from frontend_svc.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class EditedContext:
    """A history as the model is told of it."""

    messages: Sequence[InputMessage]
    applied: Sequence[dict[str, Any]] = ()
    """What each edit has cleared, as answers tell it."""
    num_original_tokens: int | None = None
    """Tokens of the prompt without any edit; None: nothing was cleared."""


async def edit_context(body: CountBody, prompts: ChatPrompts, tokenizer: Tokenizer) -> EditedContext:
    """Renders and counts only where something could be cleared. Raises what rendering raises."""
    context = EditedContext(body.messages)
    num_tokens: int | None = None
    for edit in (body.context_management.edits if body.context_management else None) or ():
        cut = None if isinstance(edit, OtherEdit) else edit.apply(context.messages)
        if isinstance(edit, OtherEdit) or cut is None:
            continue
        if num_tokens is None:
            num_tokens = await _count(body, context.messages, prompts, tokenizer)
        if not edit.is_due(context.messages, num_tokens):
            continue
        left = await _count(body, cut.messages, prompts, tokenizer)
        num_cleared = max(0, num_tokens - left)
        if num_cleared < edit.least:
            continue
        told = {"type": edit.type, **cut.told, "cleared_input_tokens": num_cleared}
        original = context.num_original_tokens or num_tokens
        context = EditedContext(cut.messages, [*context.applied, told], original)
        num_tokens = left
    return context


async def _count(
    body: CountBody, messages: Sequence[InputMessage], prompts: ChatPrompts, tokenizer: Tokenizer
) -> int:
    """Tokens of the prompt that these messages make."""
    prompt = await render_chat(body.conversation(messages), body.toolbox, prompts)
    return len(await tokenizer.encoding_of(prompt, add_special_tokens=False))
