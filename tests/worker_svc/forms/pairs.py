"""Random forms, and random fields of the same request that may contradict them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from frontend_svc.requests.request import Sampling, StructuredOutput, sampling_of
from frontend_svc.text.parsing.budget import ReasoningBudget
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.benchmarks.forms import bench
from signalbox.grammar.form import FormKind

THINK, END_THINK = "<think>", "</think>"
SCHEMAS = Path(bench.__file__).with_name("schemas.jsonl")
MAX_TOKENS = 24
WORDS = ["yes", "no", "a", "b", "ab", "é", "日本", "🙂", "12", "0", '"', "\\", " ", "\n", "x-1", "}{"]
TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
PATTERNS = ("^a$", "^[ab]$", "^(a|b)$", "^x", "b$", "[0-9]{2}", "^(é|日)$", "^$", "^.{3}$")


@dataclass(frozen=True)
class Pair:
    """One request of a client."""

    number: int
    form: StructuredOutput
    sampling: Sampling
    is_behind_reasoning: bool = False
    budget: ReasoningBudget | None = None
    prior: int = 0
    """Output tokens after which the request goes on as another attempt; 0: never."""
    told: dict[str, Any] = field(default_factory=dict)
    """The fields, for a report."""


class Pairs:
    """Makes pairs over one vocabulary; the same number gives the same pair."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._num_tokens = tokenizer.fast.get_vocab_size()
        self._think = tuple(tokenizer.fast.token_to_id(tag) for tag in (THINK, END_THINK))
        self._schemas = [json.loads(line)["schema"] for line in SCHEMAS.read_text().splitlines()]

    def make(self, number: int) -> Pair:
        """The pair of this number."""
        r = Random(number)
        form = r.choice(FORMS)(r, self._schemas)
        fields: dict[str, Any] = {"max_tokens": r.randint(1, MAX_TOKENS), "seed": number}
        for make in r.sample(FIELDS, r.choice((0, 1, 1, 2, 2, 3))):
            fields |= make(self, r, form)
        is_behind = r.random() < 0.2
        budget = None
        if is_behind and r.random() < 0.5:
            budget = ReasoningBudget(r.randint(0, 6), r.random() < 0.5, self._think[:1], self._think[1:])
        prior = r.randint(1, 8) if r.random() < 0.2 else 0
        sampling = sampling_of(fields | {"structured_output": form})
        return Pair(number, form, sampling, is_behind, budget, prior, fields)

    def ids(self, text: str) -> list[int]:
        """The tokens of a text."""
        return list(self._tokenizer.fast.encode(text, add_special_tokens=False).ids)

    def some(self, r: Random, form: StructuredOutput) -> list[int]:
        """Tokens of which some are the form's own."""
        own = self.ids(
            r.choice([form.text[:200], *form.choices, '{"a": 1, "b": [true]}', "0123456789", "yes no"])
        )
        return r.sample(own, min(len(own), r.randint(1, 12))) + [
            r.randrange(self._num_tokens) for _ in range(r.choice((0, 0, 3)))
        ]

    def allowed(self, r: Random, form: StructuredOutput) -> dict[str, Any]:
        """A list of tokens, with or without the token that ends an output."""
        kind = r.randrange(4)
        if kind == 0:
            ids = list(range(self._num_tokens))
            ids = (
                [token for token in ids if token != self._tokenizer.eos_token_id] if r.random() < 0.5 else ids
            )
        elif kind == 1:
            ids = self.ids("".join(r.sample('0123456789abcxyz{}[]":, \n-.', r.randint(1, 12))))
        else:
            ids = self.some(r, form)
        if r.random() < 0.3:
            ids = [*ids, self._tokenizer.eos_token_id or 0]
        if r.random() < 0.3:
            ids = [*ids, *self._think]
        return {"allowed_token_ids": tuple(ids)} if ids else {}

    def bias(self, r: Random, form: StructuredOutput) -> dict[str, Any]:
        """Tokens of the form that are wished for, or banned."""
        return {"logit_bias": {token: r.choice((-100.0, 100.0, 5.0)) for token in self.some(r, form)}}

    def bad_words(self, r: Random, form: StructuredOutput) -> dict[str, Any]:
        """Words of which some are the form's own."""
        own = [
            word
            for word in [*form.choices, *'{}",:[]0123456789', "true", "a", "yes", "no", END_THINK]
            if word.strip()
        ]
        return {"bad_words": tuple(word[:20] for word in r.sample(own, min(len(own), r.randint(1, 12))))}

    def stops(self, r: Random, form: StructuredOutput) -> dict[str, Any]:
        """Tokens, or strings, that end the output early."""
        if r.random() < 0.3:
            return {"stop": (r.choice(WORDS),)}
        return {"stop_token_ids": tuple(self.some(r, form)[:16])}


def _min_tokens(pairs: Pairs, r: Random, form: StructuredOutput) -> dict[str, Any]:
    return {"min_tokens": r.randint(0, 2)}


def _ignore_eos(pairs: Pairs, r: Random, form: StructuredOutput) -> dict[str, Any]:
    return {"ignore_eos": r.random() < 0.5}


def _draws(pairs: Pairs, r: Random, form: StructuredOutput) -> dict[str, Any]:
    return {
        "temperature": r.choice((0.0, 1e-30, 0.01, 1.0, 100.0)),
        "top_k": r.choice((0, 1, 2, 10**6)),
        "top_p": r.choice((1e-30, 0.1, 1.0)),
        "min_p": r.choice((0.0, 0.5, 1.0)),
    }


def _penalties(pairs: Pairs, r: Random, form: StructuredOutput) -> dict[str, Any]:
    return {
        "repetition_penalty": r.choice((1e-40, 1e-3, 0.5, 1.0, 100.0)),
        "frequency_penalty": r.choice((-2.0, 0.0, 2.0)),
        "presence_penalty": r.choice((-2.0, 0.0, 2.0)),
    }


def _logprobs(pairs: Pairs, r: Random, form: StructuredOutput) -> dict[str, Any]:
    return {"logprobs": r.choice((0, 1, 20))}


FieldMaker = Callable[[Pairs, Random, StructuredOutput], dict[str, Any]]
FIELDS: list[FieldMaker] = [
    Pairs.allowed, Pairs.allowed, Pairs.bias, Pairs.bad_words, Pairs.bad_words, Pairs.stops,
    _min_tokens, _ignore_eos, _draws, _penalties, _logprobs,
]  # fmt: skip


def _schema(r: Random, depth: int = 0) -> Any:
    """A schema that may contradict itself."""
    kind = r.choice(TYPES if depth < 3 else TYPES[2:])
    found: dict[str, Any] = {"type": kind}
    if r.random() < 0.1:
        return r.choice([True, False, {"enum": []}, {"const": r.choice(WORDS)}, {"enum": r.sample(WORDS, 3)}])
    if depth < 3 and r.random() < 0.15:
        return {r.choice(("anyOf", "allOf")): [_schema(r, depth + 1) for _ in range(2)]}
    if kind == "object":
        found["properties"] = {name: _schema(r, depth + 1) for name in r.sample("abcx", r.randint(0, 3))}
        if r.random() < 0.4:
            found["patternProperties"] = {
                p: _schema(r, depth + 1) for p in r.sample(PATTERNS, r.randint(1, 2))
            }
        if r.random() < 0.6:
            found["additionalProperties"] = r.choice((False, False, True, {"type": "integer"}))
        found["required"] = [name for name in "abcx" if r.random() < 0.2]
    elif kind == "array":
        found["items"] = _schema(r, depth + 1)
        if r.random() < 0.3:
            found["prefixItems"] = [_schema(r, depth + 1)]
        found |= {name: r.randint(0, 3) for name in ("minItems", "maxItems") if r.random() < 0.3}
    elif kind == "string":
        found |= {name: r.randint(0, 4) for name in ("minLength", "maxLength") if r.random() < 0.3}
        if r.random() < 0.3:
            found["pattern"] = r.choice(PATTERNS)
        if r.random() < 0.1:
            found["format"] = r.choice(("date", "uuid", "email", "ipv4"))
    elif kind in ("integer", "number"):
        found |= {name: r.randint(-5, 20) for name in ("minimum", "maximum") if r.random() < 0.3}
        if r.random() < 0.1:
            found["multipleOf"] = r.choice((2, 7, 0.5))
    return found


def _json_schema(r: Random, schemas: list[Any]) -> StructuredOutput:
    schema = r.choice(schemas) if r.random() < 0.2 else _schema(r)
    return StructuredOutput(FormKind.JSON_SCHEMA, json.dumps(schema), field="response_format")


def _json_object(r: Random, schemas: list[Any]) -> StructuredOutput:
    return StructuredOutput(FormKind.JSON_OBJECT, field="response_format")


def _regex(r: Random, schemas: list[Any]) -> StructuredOutput:
    parts = ["a", "b", "[0-9]", "[^a]", "(yes|no)", "é", "日本", ".", "\\s", "x{2,3}", "🙂", "\\.", "[ab]c?"]
    pieces = [(r.choice(parts), r.choice(("", "", "*", "+", "?", "{2}"))) for _ in range(r.randint(1, 5))]
    text = "".join(f"(?:{part}){count}" for part, count in pieces)
    return StructuredOutput(FormKind.REGEX, text, field="guided_regex")


def _choice(r: Random, schemas: list[Any]) -> StructuredOutput:
    choices = tuple("".join(r.sample(WORDS, r.randint(1, 3))) for _ in range(r.randint(1, 4)))
    return StructuredOutput(FormKind.CHOICE, choices=choices, field="guided_choice")


def _grammar(r: Random, schemas: list[Any]) -> StructuredOutput:
    text = r.choice(
        [
            'start: "a" (B | C)*\nB: /[0-9]+/ & ~/[0-9]*7/\nC: "," /[a-z]/',
            'start: "a" B\nB: /b+/ & ~/b*/',
            'start: "a"+ (B | "c")\nB: /b/ & /c/',
            'start: T "!"\nT: /[a-z ]+/ & ~/.*(yes|no).*/',
            'start: x+\nx: "(" x ")" | "a"',
            'root ::= "{" [a-z]+ ":" [0-9]* "}"',
            'root ::= root "a" | "b"',
            "start: <[4095]> /a+/",
            'start: <[0]> "a"',
            'start: "a" <[4097]>',
            "start: /(.|\\n)*/",
            f'start: "{r.choice("abé")}"{{{r.randint(0, 3)},{r.randint(0, 5)}}} END\nEND: /[;.]/',
        ]
    )
    return StructuredOutput(FormKind.GRAMMAR, text, field="guided_grammar", is_free=True)


def _tagged(r: Random, schemas: list[Any]) -> StructuredOutput:
    tag = {
        "type": "structural_tag",
        "structures": [{"begin": "<f=a>", "schema": _schema(r, 1), "end": "</f>"}],
        "triggers": [r.choice(("<f", "<f=a>"))],
    }
    return StructuredOutput(FormKind.STRUCTURAL_TAG, json.dumps(tag), field="response_format")


FormMaker = Callable[[Random, list[Any]], StructuredOutput]
FORMS: list[FormMaker] = [_json_schema] * 5 + [
    _json_object,
    _regex,
    _regex,
    _choice,
    _choice,
    _grammar,
    _grammar,
    _tagged,
]
