"""Forms in the words of llguidance: every form becomes one of its grammars.

Runs where it can be killed (`signalbox.grammar.vetting`): a hostile form can hang or crash what reads it.
"""

from __future__ import annotations

import json
import re
from typing import Any

from llguidance import LLMatcher, LLTokenizer
from llguidance.gbnf_to_lark import GbnfToLarkError, any_to_lark

from signalbox.grammar.form import GAP, Form, FormError, FormKind
from signalbox.grammar.spent_patterns import without_spent_patterns

FREE_TEXT = r"/(.|\n)*/"


def to_grammar(form: Form, tokenizer: LLTokenizer) -> str:
    """The grammar that `LLMatcher` takes for `form`. Raises FormError for what can be seen without compiling it."""
    if form.kind == FormKind.JSON_SCHEMA:
        return LLMatcher.grammar_from_json_schema(_schema(_json(form.text, "the schema"), tokenizer))
    if form.kind == FormKind.JSON_OBJECT:
        return LLMatcher.grammar_from_json_schema(_schema({"type": "object"}, tokenizer))
    if form.kind == FormKind.REGEX:
        return LLMatcher.grammar_from_regex(form.text)
    if form.kind == FormKind.GRAMMAR:
        return LLMatcher.grammar_from_lark(_with_open_patterns(_lark(form.text), tokenizer))
    if form.kind == FormKind.CHOICE:
        return LLMatcher.grammar_from_regex(_any_of(form.choices))
    return LLMatcher.grammar_from_lark(_tagged_text(_json(form.text, "the structural tag"), tokenizer))


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise FormError(f"is not JSON: {error}") from None
    except RecursionError:
        raise FormError(f"cannot be read: {what} is nested too deeply") from None


def _schema(schema: Any, tokenizer: LLTokenizer) -> str:
    """The schema as JSON, with bounded gaps unless it has options of its own."""
    if isinstance(schema, bool):
        return json.dumps(schema)
    if not isinstance(schema, dict):
        raise FormError("cannot be followed: a schema must be a JSON object")
    cleaned: dict[str, Any] = without_spent_patterns(schema, tokenizer)
    return json.dumps({"x-guidance": {"whitespace_pattern": GAP}} | cleaned)


def _lark(text: str) -> str:
    """Lark as it is; EBNF (`root ::= ...`) is rewritten."""
    try:
        return any_to_lark(text)
    except (GbnfToLarkError, ValueError) as error:
        raise FormError(f"is neither EBNF nor Lark: {error}") from None
    except RecursionError:
        raise FormError("cannot be read: the grammar is nested too deeply") from None


def _with_open_patterns(lark: str, tokenizer: LLTokenizer) -> str:
    """The grammar, with schemas within it as `_schema` has them."""
    if "patternProperties" not in lark:
        return lark
    parts, end, decoder = [], 0, json.JSONDecoder()
    for begin in re.finditer(r"%json\s+(?=\{)", lark):
        if begin.start() < end:
            continue
        try:
            schema, behind = decoder.raw_decode(lark, begin.end())
        except (ValueError, RecursionError):
            continue
        cleaned = without_spent_patterns(schema, tokenizer)
        if cleaned != schema:
            parts += [lark[end : begin.end()], json.dumps(cleaned)]
            end = behind
    return "".join([*parts, lark[end:]])


def _any_of(choices: tuple[str, ...]) -> str:
    """One regular expression, so that thousands of choices are one lexeme and not as many rows of the parser."""
    if not choices:
        raise FormError("has no choices")
    return "|".join("".join(map(_literal, choice)) for choice in choices)


def _literal(character: str) -> str:
    plain = character.isascii() and character.isalnum()
    return character if plain else f"\\x{{{ord(character):X}}}"


def _tagged_text(tag: Any, tokenizer: LLTokenizer) -> str:
    """Lark for free text in which each trigger begins one of the structures; the text may end after any structure.

    `tag` is `{"type": "structural_tag", "structures": [{"begin", "schema", "end"}], "triggers": [...]}`.
    """
    triggers, structures = _read_tag(tag)
    rules = [f"start: ({' | '.join(f'tag_{i}' for i in range(len(structures)))})* text_end", "text_end: TEXT"]
    rules.append(f"TEXT: {FREE_TEXT}")
    for number, structure in enumerate(structures):
        begin, end = structure["begin"], structure["end"]
        trigger = next((trigger for trigger in triggers if begin.startswith(trigger)), None)
        if trigger is None:
            raise FormError(f"has a structure that begins with {begin!r}, which no trigger starts")
        body = (
            f"{_quoted(begin[len(trigger) :])} %json {_schema(structure['schema'], tokenizer)} {_quoted(end)}"
        )
        special = _special_token(trigger, tokenizer)
        if special is not None:
            rules.append(f"tag_{number}: TEXT <[{special}]> {body}")
        else:
            rules.append(f"head_{number}[lazy]: TEXT {_quoted(trigger)}")
            rules.append(f"tag_{number}: head_{number} {body}")
    return "%llguidance {}\n" + "\n".join(rules)


def _read_tag(tag: Any) -> tuple[list[str], list[dict[str, Any]]]:
    """The triggers and structures of a tag, checked. Raises FormError."""
    if not isinstance(tag, dict) or "structures" not in tag or "triggers" not in tag:
        raise FormError('must be an object with "structures" and "triggers"')
    unknown = set(tag) - {"type", "structures", "triggers"}
    if unknown or tag.get("type", "structural_tag") != "structural_tag":
        raise FormError(f"has something that is not supported: {', '.join(sorted(unknown)) or 'type'}")
    triggers, structures = tag["triggers"], tag["structures"]
    if not _is_list_of(triggers, str) or not all(triggers):
        raise FormError("must have triggers, none of them empty")
    if not _is_list_of(structures, dict):
        raise FormError("must have structures")
    for structure in structures:
        if set(structure) != {"begin", "schema", "end"}:
            raise FormError("must have structures of begin, schema and end, and nothing else")
        if not isinstance(structure["begin"], str) or not isinstance(structure["end"], str):
            raise FormError("must have structures with strings for begin and end")
    return triggers, structures


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, kind) for item in value)


def _quoted(text: str) -> str:
    """A string of Lark, or nothing."""
    return f"/{''.join(map(_literal, text))}/" if text else ""


def _special_token(text: str, tokenizer: LLTokenizer) -> int | None:
    """The special token that `text` is, if it is one: such a token never stands for the text's characters."""
    tokens = tokenizer.tokenize_str(text, parse_special=True)
    return tokens[0] if len(tokens) == 1 and tokenizer.is_special_token(tokens[0]) else None
