"""A grammar for an output that is calls or an answer in a form: what a form asks for where the model may call tools."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import orjson

from frontend_svc.grammars import harmony
from frontend_svc.grammars.behind_reasoning import body_of, reasoning_rules
from frontend_svc.grammars.calls import CallGrammar, Functions
from frontend_svc.grammars.lark import LINE, Lark, Mark, Text
from frontend_svc.grammars.schemas import lean
from frontend_svc.grammars.strict_calls import FAMILIES, MAX_REMEMBERED, write_calls, written
from frontend_svc.requests.request import StructuredOutput
from frontend_svc.text.parsing.language import Language
from signalbox.errors import UnsupportedError
from signalbox.grammar.form import FormKind

COMBINED = (FormKind.JSON_SCHEMA, FormKind.JSON_OBJECT)
"""Kinds of answers of which the first character that is no space tells that they are no call, or whose tokens are those
of a call, too."""


def calls_or_answer(
    answer: StructuredOutput, language: Language, within: bool, functions: Functions
) -> StructuredOutput:
    """The form of an output.

    within: the prompt ends within reasoning. `functions` are the schemas of the arguments, by name; at least one.
    Raises UnsupportedError for an answer that is not told from calls, and for what the model's language has no way to
    hold.
    """
    if answer.form not in COMBINED:
        raise UnsupportedError(
            f"{answer.field} does not go with tools that the model may call, as only JSON does: force a call, "
            'or send tool_choice "none"',
            field=answer.field,
        )
    return _form(answer, language, within, written(functions, "tools"))


@lru_cache(MAX_REMEMBERED)
def _form(
    answer: StructuredOutput, language: Language, within: bool, functions_json: bytes
) -> StructuredOutput:
    functions = {name: lean(schema) for name, schema in orjson.loads(functions_json).items()}
    body = body_of(answer)
    rules = (
        harmony.form_rules(body, language, functions)
        if language.is_harmony
        else _rules(body, language, within, functions)
    )
    text = "%llguidance {}\n" + "\n".join(rules) + "\n"
    return replace(answer, form=FormKind.GRAMMAR, text=text, inner=answer, needs_inner=False)


def _rules(body: str, language: Language, within: bool, functions: Functions) -> list[str]:
    lark = Lark(language.token_ids)
    calls = write_calls(FAMILIES[language.tools], lark, functions)
    tags = language.reasoning_tags
    begun = reasoning_rules(tags, language, within) if tags is not None else ["start: form"]
    return [*begun, f"form: {body} | {_calls(lark, calls)}", *lark.lines()]


def _calls(lark: Lark, calls: CallGrammar) -> str:
    """Calls from the first character to the last."""
    if not calls.opener:
        return calls.beside_json
    opener: list[Mark | str] = [Mark(calls.opener)]
    if calls.inner_token and lark.is_token(calls.inner_token):
        before, _, behind = calls.opener.partition(calls.inner_token)
        opener = [before, Mark(calls.inner_token), behind]
    first, other = (lark.join(*space, *opener) for space in ([], [Text(LINE)]))
    tagged = f"{first} {calls.body} ({other} {calls.body})*"
    return f"{tagged} | {calls.beside_json}" if calls.beside_json else tagged
