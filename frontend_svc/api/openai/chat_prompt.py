"""From a conversation and the tools of a call to what a request needs: the same for all faces that chat."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from frontend_svc.api.openai.tools import Toolbox
from frontend_svc.grammars.behind_reasoning import bind_form
from frontend_svc.grammars.calls_or_answer import calls_or_answer
from frontend_svc.grammars.strict_calls import strict_form
from frontend_svc.requests.request import StructuredOutput
from frontend_svc.templates.conversation import Conversation, content_text
from frontend_svc.templates.prompts import ChatPrompts
from frontend_svc.text.parsing.language import Calls, Language, ParserPlan
from signalbox.errors import InvalidRequestError, UnsupportedError


@dataclass(frozen=True)
class ChatPrompt:
    """What of a request follows from its conversation."""

    text: str
    form: StructuredOutput | None
    """The form of all output, reasoning included; None: it is free."""
    parsing: ParserPlan | None
    """How its outputs are read; None: they are text."""
    turn_end: int | None
    """Token that ends the assistant's turn; None: not known, or it ends more than that."""
    in_reasoning: bool
    """The prompt ends within reasoning."""


async def make_chat_prompt(
    conversation: Conversation,
    toolbox: Toolbox,
    form: StructuredOutput | None,
    prompts: ChatPrompts,
    language: Language,
) -> ChatPrompt:
    """`form`: of the answer or of a forced call. Raises InvalidRequestError or UnsupportedError for what the model's
    template or its language has no way for."""
    _check_language(toolbox, language)
    text = await render_chat(conversation, toolbox, prompts)
    within = language.opens_reasoning(text, _continued_text(conversation))
    may_answer = form is not None and bool(toolbox.bound_functions)
    bound = await _bind(form, toolbox, language, within)
    calls = Calls.FIRST if may_answer else toolbox.calls
    parsing = language.plan(
        text,
        toolbox.callable,
        calls=calls,
        reasons=within,
        max_calls=toolbox.max_calls,
        is_bound=bound is not None,
    )
    # In harmony the tag that ends a turn ends each message of it.
    turn_end = None if language.is_harmony else prompts.turn_end
    return ChatPrompt(text, bound, parsing, turn_end, within)


async def _bind(
    form: StructuredOutput | None, toolbox: Toolbox, language: Language, within: bool
) -> StructuredOutput | None:
    """The form of all output. Grammars of many tools take a tenth of a second."""
    if form is None:
        functions = toolbox.strict_functions
        return await asyncio.to_thread(strict_form, language, within, functions) if functions else None
    if functions := toolbox.bound_functions:
        return await asyncio.to_thread(calls_or_answer, form, language, within, functions)
    return bind_form(form, language, within, toolbox.callable if toolbox.is_forced else {})


async def render_chat(conversation: Conversation, toolbox: Toolbox, prompts: ChatPrompts) -> str:
    """The prompt. Forced calls need no place for tools in the template: they are told in words where it has none, in
    the system's turn, or in the user's where the template takes no other."""
    if not toolbox.is_forced or prompts.takes_tools(conversation):
        return await prompts.render(conversation)
    told = toolbox.describe(conversation.messages, to_user=False)
    try:
        return await prompts.render(replace(conversation, tools=(), messages=told))
    except InvalidRequestError:
        told = toolbox.describe(conversation.messages, to_user=True)
        return await prompts.render(replace(conversation, tools=(), messages=told))


def _continued_text(conversation: Conversation) -> str:
    """Text of the message that the model is to write on; empty: it begins one."""
    return content_text(conversation.messages[-1]["content"]) if conversation.continue_final_message else ""


def _check_language(toolbox: Toolbox, language: Language) -> None:
    if toolbox.callable and not toolbox.is_forced and not language.tools:
        raise UnsupportedError(
            'tool_choice "auto" needs to know how the model writes calls, which neither its template nor its '
            "vocabulary shows: start the frontend with --tool-parser, or force a call",
            field="tool_choice",
        )
