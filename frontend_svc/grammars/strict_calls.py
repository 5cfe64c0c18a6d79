"""A grammar for free text in which each call that begins is one of a tool that there is, with arguments as its schema
has them: what `strict` asks for where the model chooses itself whether to call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import orjson

from frontend_svc.grammars import harmony, json_calls, own_calls, tagged_calls
from frontend_svc.grammars.behind_reasoning import reasoning_rules
from frontend_svc.grammars.calls import CallGrammar, Functions, Writer
from frontend_svc.grammars.lark import ANYTHING, Lark, containing, literal, never
from frontend_svc.grammars.schemas import UnboundError, lean
from frontend_svc.requests.request import StructuredOutput
from frontend_svc.text.parsing.families import HARMONY
from frontend_svc.text.parsing.language import Language
from signalbox.errors import UnsupportedError
from signalbox.grammar.form import FormKind

MAX_REMEMBERED = 32
"""Grammars kept by what they were made of: an agent sends the same tools with each turn."""
MAX_FUNCTIONS_BYTES = 1 << 20
"""All tools of a request whose calls have to fit their schemas."""
UNREADABLE = (UnboundError, TypeError, AttributeError, ValueError, RecursionError)
"""What a schema that is none, or one too deep, may raise."""


def strict_form(language: Language, within: bool, functions: Functions) -> StructuredOutput | None:
    """The form of an output; None: nothing is to be followed.

    within: the prompt ends within reasoning. `functions` are the schemas of the arguments, by name; empty: nothing is
    strict. Raises UnsupportedError for what the model's language has no way to hold.
    """
    return _form(language, within, written(functions, "tools")) if functions else None


def written(functions: Functions, field: str) -> bytes:
    """The functions as JSON. Raises UnsupportedError for more than a grammar can be made of."""
    try:
        text = orjson.dumps(functions)
    except TypeError:
        raise UnsupportedError("schemas of tools are nested too deeply", field=field) from None
    if len(text) > MAX_FUNCTIONS_BYTES:
        raise UnsupportedError(
            f"schemas of tools have {len(text)} bytes, of which {MAX_FUNCTIONS_BYTES} can be followed",
            field=field,
        )
    return text


@lru_cache(MAX_REMEMBERED)
def _form(language: Language, within: bool, functions_json: bytes) -> StructuredOutput:
    functions = {name: lean(schema) for name, schema in orjson.loads(functions_json).items()}
    is_harmony = language.is_harmony
    rules = harmony.strict_rules(language, functions) if is_harmony else _rules(language, within, functions)
    grammar = "%llguidance {}\n" + "\n".join(rules) + "\n"
    return StructuredOutput(FormKind.GRAMMAR, grammar, field="tools")


def _rules(language: Language, within: bool, functions: Functions) -> list[str]:
    lark = Lark(language.token_ids)
    write = FAMILIES[language.tools]
    calls = write_calls(write, lark, functions)
    tags = language.reasoning_tags
    hidden = [calls.opener, *calls.hidden, *([tags.begin] if tags is not None else [])]
    rules = ["start: form"]
    if tags is not None:
        # Space in front of free text is part of it; a tag of reasoning is not.
        first, *rest = reasoning_rules(tags, language, within)
        rules = [first.replace("GAP form", "form").replace(r"/\n{0,2}/ ", ""), *rest]
    return [*rules, f"form: {_free(lark, calls, hidden)}", *lark.lines()]


def write_calls(write: Writer, lark: Lark, functions: Functions) -> CallGrammar:
    """Calls of these functions. Raises UnsupportedError, naming the one that the language has no way to hold."""
    try:
        return write(lark, functions)
    except UNREADABLE:
        for name, schema in functions.items():
            try:
                write(Lark(lark.token_ids), {name: schema})
            except UNREADABLE as error:
                reason = error if isinstance(error, UnboundError) else "it is no schema"
                message = f"strict: the model's way to write calls cannot hold tool {name!r} to its schema: {reason}"
                raise UnsupportedError(message, field="tools") from None
        raise


def _free(lark: Lark, calls: CallGrammar, hidden: list[str]) -> str:
    """Text and calls in turns."""
    excluded = never(list(map(literal, hidden)))
    begun = f"{_head(lark, calls, hidden)} {calls.body}"
    if calls.inner_token and lark.is_token(calls.inner_token):
        # What may stand in front of the token is not the end of text: else either could be meant.
        excluded += f" & ~/{ANYTHING}{literal(calls.opener.partition(calls.inner_token)[0])}/"
    if not calls.untagged:
        return f"({begun})* {lark.terminal(f'/{ANYTHING}/{excluded}')}"
    # What begins a call without a tag does so in front of all only.
    head = _head(lark, calls, hidden, calls.initial)
    first = lark.terminal(f"/{ANYTHING}/{excluded} & ~/{calls.initial}{ANYTHING}/")
    text = lark.terminal(f"/{ANYTHING}/{excluded}")
    return f"{first} | {calls.untagged} | {head} {calls.body} ({begun})* {text}"


def _head(lark: Lark, calls: CallGrammar, hidden: list[str], initial: str = "") -> str:
    """Text up to the tag that begins a call, and that tag."""
    others = [mark for mark in hidden if mark != calls.opener]
    start = f" & ~/{initial}{ANYTHING}/" if initial else ""
    if lark.is_token(calls.opener):
        excluded = never(list(map(literal, hidden)))
        return f"{lark.terminal(f'/{ANYTHING}/{excluded}{start}')} {lark.token(calls.opener)}"
    if calls.inner_token and lark.is_token(calls.inner_token):
        before, _, behind = calls.opener.partition(calls.inner_token)
        excluded = never(list(map(literal, hidden)))
        text = lark.terminal(f"/{ANYTHING}{literal(before)}/{excluded}{start}")
        return f"{text} {lark.token(calls.inner_token)} {lark.join(behind)}"
    excluded = never(list(map(literal, others)))
    return lark.lazy(f"{containing(calls.opener, at_end=True)}{excluded}{start}")


FAMILIES: Mapping[str, Writer] = {
    "hermes": json_calls.hermes,
    "qwen3_coder": tagged_calls.qwen3_coder,
    "llama3_json": json_calls.llama,
    "llama4_json": json_calls.llama,
    "pythonic": own_calls.pythonic,
    "llama4_pythonic": own_calls.pythonic,
    "mistral": json_calls.mistral,
    "deepseek_v3": json_calls.deepseek_v3,
    "deepseek_v31": json_calls.deepseek_v31,
    "deepseek_v32": tagged_calls.dsml,
    "deepseek_v4": tagged_calls.dsml,
    "glm45": tagged_calls.glm,
    "glm47": tagged_calls.glm,
    "kimi_k2": json_calls.kimi_k2,
    "minimax_m2": tagged_calls.minimax_m2,
    "gemma4": own_calls.gemma4,
}
"""How each family's calls are bound; harmony's apart."""
assert HARMONY not in FAMILIES
