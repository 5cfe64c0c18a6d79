"""Writes the JSON schemas of public specifications that the limits on forms are held against.

    python -m tools.form_corpus

They come from what is installed for the tests: the types of openai, anthropic, cohere (their public OpenAPI documents),
guidellm and fastapi, and Kubernetes' OpenAPI document. What says nothing about values is left out; so are schemas
that the grammar library does not support at any limit, and duplicates by shape.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from signalbox.benchmarks.forms.corpus import SCHEMAS
from signalbox.cli.ring.ring import DEMO_MODEL
from signalbox.grammar.compilation import load_tokenizer
from signalbox.grammar.form import Form, FormError, FormKind
from signalbox.grammar.translation import to_grammar

SHARES = {
    "openai.types": 65,
    "anthropic.types": 45,
    "cohere": 20,
    "guidellm": 15,
    "fastapi": 5,
    "kubernetes": 50,
}
"""Schemas of each source."""
MAX_BYTES = 12_000
KUBERNETES = Path("kubernetes-json-schema", "v1.31.0-local-strict", "_definitions.json")
ANNOTATIONS = {"description", "title", "default", "examples", "example", "$schema", "$id", "$comment"}
MAPS = {"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"}
"""Keywords whose keys are names."""


def main() -> None:
    """Writes `SCHEMAS`."""
    warnings.filterwarnings("ignore")
    tokenizer = load_tokenizer(DEMO_MODEL / "tokenizer.json", None, [0])
    known: set[str] = set()
    rows: list[dict[str, Any]] = []
    for source, count in SHARES.items():
        found = dict(kubernetes() if source == "kubernetes" else models_of(source))
        names = sorted(found)
        random.Random(0).shuffle(names)
        rows += take(((name, found[name]) for name in names), count, known, tokenizer)
    SCHEMAS.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def take(
    found: Iterator[tuple[str, Any]], count: int, known: set[str], tokenizer: LLTokenizer
) -> Iterator[dict[str, Any]]:
    """The first `count` that can be followed and are not `known`."""
    for name, schema in found:
        if count == 0:
            return
        plain = without_annotations(schema)
        text = json.dumps(plain)
        if text in known or len(text) > MAX_BYTES or not can_be_followed(text, tokenizer):
            continue
        known.add(text)
        count -= 1
        yield {"name": name, "schema": plain}


def without_annotations(value: Any, *, are_names: bool = False) -> Any:
    """A schema without what says nothing about values. are_names: the keys of `value` are no keywords."""
    if isinstance(value, list):
        return [without_annotations(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: item
        if key in ("enum", "const")
        else without_annotations(item, are_names=key in MAPS and not are_names)
        for key, item in value.items()
        if are_names or (key not in ANNOTATIONS and not key.startswith("x-"))
    }


def can_be_followed(schema: str, tokenizer: LLTokenizer) -> bool:
    """Whether the library takes it, at limits of its own."""
    try:
        grammar = to_grammar(Form(FormKind.JSON_SCHEMA, schema), tokenizer)
    except FormError:
        return False
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=LLParserLimits(verbose_errors=False))
    return not matcher.is_error() and not matcher.get_grammar_warnings()


def models_of(package: str) -> Iterator[tuple[str, Any]]:
    """The schemas of all pydantic models of a package."""
    root = importlib.import_module(package)
    for module_info in pkgutil.walk_packages(root.__path__, package + "."):
        try:
            module = importlib.import_module(module_info.name)
        except (Exception, SystemExit):  # an optional dependency, or a program
            continue
        for name, model in inspect.getmembers(module, inspect.isclass):
            if not issubclass(model, pydantic.BaseModel) or model.__module__ != module.__name__:
                continue
            try:
                yield f"{module_info.name}.{name}", model.model_json_schema()
            except Exception:  # a type that JSON has no schema for
                continue


def kubernetes() -> Iterator[tuple[str, Any]]:
    """The types of Kubernetes' API, each with what it refers to."""
    package = Path(str(importlib.import_module("kubernetes_validate").__file__)).parent
    definitions = json.loads((package / KUBERNETES).read_text())
    definitions = definitions.get("$defs", definitions.get("definitions"))
    for name in sorted(definitions):
        wanted, found = [name], dict[str, Any]()
        while wanted:
            each = wanted.pop()
            if each not in found:
                found[each] = definitions[each]
                wanted += [text.partition('"')[0] for text in json.dumps(found[each]).split("#/$defs/")[1:]]
        local = json.loads(json.dumps(found).replace("/api/_definitions.json#", "#"))
        yield (
            f"kubernetes.{name}",
            {**local.pop(name), "$defs": local} if local.keys() != {name} else local[name],
        )


if __name__ == "__main__":
    main()
