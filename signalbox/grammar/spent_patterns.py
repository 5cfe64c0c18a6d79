"""Patterns of a schema that name nothing but what `properties` names already.

After the last property llguidance (1.9) allows a comma for the names of such a pattern, of which none is left: a dead
end (guidance-ai/llguidance#265). What such a pattern says of its properties is said at them instead.
"""

from __future__ import annotations

import json
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from signalbox.grammar.compilation import is_dead_end

_DATA = ("enum", "const", "default", "examples")


def without_spent_patterns(schema: Any, tokenizer: LLTokenizer) -> Any:
    """The schema, which is left as it is, with the same meaning and without such patterns."""
    if isinstance(schema, list):
        return [without_spent_patterns(part, tokenizer) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        word: value if word in _DATA else without_spent_patterns(value, tokenizer)
        for word, value in schema.items()
    }
    patterns, properties = found.get("patternProperties"), found.get("properties")
    is_closed = found.get("additionalProperties") is False
    if is_closed and isinstance(patterns, dict) and isinstance(properties, dict) and properties:
        _drop_spent(found, patterns, properties, tokenizer)
    return found


def _drop_spent(
    schema: dict[str, Any], patterns: dict[str, Any], properties: dict[str, Any], tokenizer: LLTokenizer
) -> None:
    left = dict(patterns)
    for pattern, says in patterns.items():
        if _names_more(pattern, list(properties), tokenizer):
            continue
        del left[pattern]
        for name in [name for name in properties if _fits(name, pattern, tokenizer)]:
            properties[name] = {"allOf": [properties[name], says]}
    schema["patternProperties"] = left
    if not left:
        del schema["patternProperties"]


def _names_more(pattern: str, names: list[str], tokenizer: LLTokenizer) -> bool:
    """Whether another name than these fits `pattern`; yes where that cannot be told."""
    schema = {
        "x-guidance": {"whitespace_flexible": False},
        "type": "object",
        "properties": {name: {"type": "null"} for name in names},
        "required": names,
        "patternProperties": {pattern: True},
        "additionalProperties": False,
    }
    begun = "{" + ",".join(f"{json.dumps(name, ensure_ascii=False)}:null" for name in names)
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(json.dumps(schema)), log_level=0)
    if not matcher.consume_tokens(tokenizer.tokenize_str(begun) + tokenizer.tokenize_str(",")):
        return True
    matcher.compute_bitmask()
    return not is_dead_end(matcher)


def _fits(name: str, pattern: str, tokenizer: LLTokenizer) -> bool:
    schema = json.dumps({"type": "string", "pattern": pattern})
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(schema), log_level=0)
    text = json.dumps(name, ensure_ascii=False)
    return bool(matcher.consume_tokens(tokenizer.tokenize_str(text))) and matcher.is_accepting()
