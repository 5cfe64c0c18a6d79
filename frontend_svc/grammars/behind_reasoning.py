"""Has a form bind behind the reasoning of a model that reasons: one grammar for both, so that the automaton that
enforces the form also sees where the reasoning ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from frontend_svc.grammars import harmony
from frontend_svc.grammars.lark import ANYTHING, containing, json_of
from frontend_svc.requests.request import StructuredOutput
from frontend_svc.text.parsing.language import Language
from frontend_svc.text.parsing.reasoning import ReasoningTags
from signalbox.errors import UnsupportedError
from signalbox.grammar.form import FormKind


def bind_form(
    form: StructuredOutput, language: Language, within: bool, functions: Mapping[str, Mapping[str, Any]] = {}
) -> StructuredOutput:
    """The form with all that the model writes before it.

    within: the prompt ends within reasoning. `functions` are those of which one has to be called, by name; empty: the
    form is of the answer. Raises UnsupportedError for a form that cannot stand behind reasoning.
    """
    tags = language.reasoning_tags
    if form.form is FormKind.STRUCTURAL_TAG or (tags is None and not language.is_harmony):
        return form
    if language.is_harmony:
        rules = harmony.form_rules("" if functions else body_of(form), language, functions)
    else:
        assert tags is not None
        rules = [*reasoning_rules(tags, language, within), f"form: {body_of(form)}"]
    inner = None if functions and language.is_harmony else form
    text = "%llguidance {}\n" + "\n".join(rules) + "\n"
    return replace(form, form=FormKind.GRAMMAR, text=text, choices=(), inner=inner)


def reasoning_rules(tags: ReasoningTags, language: Language, within: bool) -> list[str]:
    """`start` and the rules of what stands in front of `form`."""
    begin, end = mark_of(tags.begin, language), mark_of(tags.end, language)
    opened = "thought" if within else f"(/\\n{{0,2}}/ {begin} thought)?"
    rules = [f"start: {opened} GAP form", r"GAP: /\n{0,2}/"]
    if tags.end in language.token_ids:
        return [*rules, f"thought: THOUGHT {end}", f"THOUGHT: /{ANYTHING}/ & ~{containing(tags.end)}"]
    return [*rules, f"thought[lazy]: {containing(tags.end, at_end=True)}"]


def mark_of(text: str, language: Language) -> str:
    """A token where the vocabulary has it, else its text."""
    return f"<[{language.token_ids[text]}]>" if text in language.token_ids else json.dumps(text)


def body_of(form: StructuredOutput) -> str:
    """The form as an expression. Raises UnsupportedError for one that has none."""
    match form.form:
        case FormKind.JSON_SCHEMA:
            try:
                return json_of(json.loads(form.text))
            except ValueError as error:
                raise UnsupportedError(f"{form.field} is not JSON: {error}", field=form.field) from None
        case FormKind.JSON_OBJECT:
            return json_of({"type": "object"})
        case FormKind.REGEX:
            return f"/{_slashes(form.text)}/"
        case FormKind.CHOICE:
            return " | ".join(json.dumps(choice, ensure_ascii=False) for choice in form.choices)
    if "::=" in form.text:
        raise UnsupportedError(f"{form.field} must be Lark for a model that reasons", field=form.field)
    return f"%lark {{\n{form.text}\n}}"


def _slashes(regex: str) -> str:
    """A regular expression as Lark writes it: a slash would end it, and so would a line."""
    text, escaped = "", False
    for character in regex:
        if character == "/" and not escaped:
            text += "\\"
        text += "\\n" if character == "\n" else character
        escaped = character == "\\" and not escaped
    return text
