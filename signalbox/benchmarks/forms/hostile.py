"""Fifty forms that are made to cost the most for what they are: ambiguous grammars, repetitions, recursion,
alternations, regular expressions with many states, lexers with many overlaps."""

from __future__ import annotations

import json
from typing import Any

from signalbox.grammar.form import Form, FormKind

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def hostile_forms() -> dict[str, Form]:
    """The forms by name."""
    forms = {
        name: Form(FormKind.GRAMMAR, text) for name, text in (_ambiguous() | _repeated() | _deep()).items()
    }
    forms |= {name: Form(FormKind.GRAMMAR, text) for name, text in (_alternatives() | _lexers()).items()}
    forms |= {name: Form(FormKind.REGEX, text) for name, text in _regexes().items()}
    return forms | {name: Form(FormKind.JSON_SCHEMA, json.dumps(value)) for name, value in _schemas().items()}


def _ambiguous() -> dict[str, str]:
    lists = "\n".join(f"l{i} ::= [a-z] | l{i} l{(i + 1) % 40}" for i in range(40))
    halves = "\n".join(f'r{i} ::= r{i + 1} r{i + 1} | ""' for i in range(12))
    return {
        "ten times a sequence": 'root ::= s s s s s s s s s s\ns ::= [a-z] | s s | ""',
        "a sequence": 'root ::= s s s\ns ::= [a-z] | s s | ""',
        "two of itself": "root ::= s\ns ::= [a-z] | s s",
        "three of itself": "root ::= s\ns ::= s s s | s s | [a-z ]",
        "operators": 'root ::= e\ne ::= e "+" e | e "*" e | e "-" e | [a-z0-9]',
        "operators and spaces": 'root ::= e\ne ::= w e w "+" w e w | [a-z]\nw ::= " " w | ""',
        "hidden left recursion": 'root ::= n s\nn ::= "" | "a" n | n "a"\ns ::= n s n | [a-z]',
        "palindromes of three": 'root ::= p\np ::= "a" p "a" | "b" p "b" | "c" p "c" | [a-c] | ""',
        "palindromes": "root ::= p\np ::= " + " | ".join(f'"{c}" p "{c}"' for c in LETTERS) + ' | ""',
        "20 that may be empty": "root ::= " + " ".join(["s"] * 20) + '\ns ::= "a" | "b" | ""',
        "200 that may be empty": "root ::= " + " ".join(["s"] * 200) + '\ns ::= "a" | "b" | ""',
        "4096 that may be empty": f'root ::= r0 r0\n{halves}\nr12 ::= [a-z] | ""',
        "dangling else": 'root ::= s+\ns ::= "i" s | "i" s "e" s | "x" | s s',
        "lists of lists": 'root ::= x*\nx ::= y*\ny ::= z*\nz ::= "a"*',
        "alike alternatives": 'root ::= (x | y | z)+\nx ::= ("a" | "b")+\ny ::= ("a" | "c")+\nz ::= ("a" | "d")+',
        "40 lists": "root ::= " + " | ".join(f"l{i}" for i in range(40)) + "\n" + lists,
    }


def _repeated() -> dict[str, str]:
    return {
        "1000 of a rule": 'root ::= (s){1,1000}\ns ::= "a" | "b" s "c" | ""',
        "30 of 30 of 30": 'root ::= x{0,30}\nx ::= y{0,30}\ny ::= ("a" | "ab"){0,30}',
        "500 that are optional": "root ::= " + " ".join(f'("{LETTERS[i % 26]}{i}")?' for i in range(500)),
        "2000 of two": "start: (A | B){1,2000}\nA: /a+/\nB: /a+b?/",
    }


def _deep() -> dict[str, str]:
    chain = "\n".join(f"r{i} ::= r{i + 1}" for i in range(3000))
    ends = "\n".join(f'r{i} ::= "a" | r{i + 1} "b"' for i in range(1000))
    left = "\n".join(f"r{i} ::= r{(i + 1) % 600} [a-z] | [a-z]" for i in range(600))
    return {
        "3000 rules deep": f'root ::= r0\n{chain}\nr3000 ::= "a"',
        "1000 ends deep": f'root ::= r0\n{ends}\nr1000 ::= "a"',
        "600 rules to the left": f"root ::= r0\n{left}",
        "parentheses": 'root ::= "(" root ")" root | "[" root "]" root | ""',
        "parentheses in text": 'root ::= ([a-z] | "(" root ")" | "[" root ")" | root root)*',
    }


def _alternatives() -> dict[str, str]:
    words = " | ".join(f'"w{i}"' for i in range(5000))
    rules = "\n".join(f'r{i} ::= "a" r{(i * 7 + 1) % 3000} | [a-z]' for i in range(3000))
    return {
        "5000 words": f"root ::= ({words})+",
        "3000 rules": "root ::= " + " | ".join(f"r{i}" for i in range(3000)) + "\n" + rules,
        "800 that begin alike": "root ::= " + " | ".join(f'"a"+ "b{i}"' for i in range(800)),
    }


def _lexers() -> dict[str, str]:
    overlaps = "\n".join(f"T{i}: /[a-z]*{LETTERS[i % 26]}[a-z]{{{i // 6}}}/" for i in range(60))
    counting = "\n".join(f"T{i}: /(a|b)*{'ab'[i % 2]}(a|b){{{10 + i}}}/" for i in range(4))
    lengths = "\n".join(f"T{i}: /a{{1,{i + 1}}}b?/" for i in range(400))
    return {
        "60 tokens that overlap": "start: (" + " | ".join(f"T{i}" for i in range(60)) + ")+\n" + overlaps,
        "tokens that count": f"start: (T0 | T1 | T2 | T3)+\n{counting}",
        "400 tokens of one letter": "start: (" + " | ".join(f"T{i}" for i in range(400)) + ")+\n" + lengths,
        "tokens in a sequence": "start: s s s s s s\ns: T | U | s s | \nT: /[a-z]+/\nU: /[a-z ]+/",
    }


def _regexes() -> dict[str, str]:
    return {
        "30 a": "(.*a){30}",
        "the 26th from the end": "(a|b)*a(a|b){25}",
        "the 13th from the end": "([a-z]|[0-9])*a([a-z]|[0-9]){12}",
        "plus of plus": "((((a+)+)+)+)+b",
        "1000 words": "([a-z]{1,10} ){1,1000}",
        "20 of 20 of 20": "(((a{1,20}b?){1,20}c?){1,20}d?){1,20}",
        "words in any order": "(.*cat.*dog.*|.*dog.*cat.*)&(.*bird.*)&(.*a.*b.*c.*d.*e.*f.*g.*)",
        "classes of Unicode": r"(\p{L}\p{N}?){1,200}(\w\W){20}",
        "many ends": "|".join(f".*a.{{{i}}}b" for i in range(1, 14)),
    }


def _schemas() -> dict[str, Any]:
    keys = [
        {
            "type": "object",
            "properties": {f"k{i}": {"type": "string"}, "x": {"type": "number"}},
            "required": [f"k{i}"],
        }
        for i in range(300)
    ]
    node = {"$ref": "#/$defs/t"}
    tree = [
        {"type": "array", "items": node},
        {"type": "object", "additionalProperties": node},
        {"type": "null"},
    ]
    lists = [{"type": "array", "items": {"type": "string", "pattern": f"^a*b{{{i}}}"}} for i in range(1, 120)]
    patterns = {f"^a*b{{{i}}}c": {"type": "string"} for i in range(1, 60)}
    alike = [{"type": "array", "items": node}] * 30
    return {
        "60 objects deep": _nested(60),
        "10000 values": {"enum": [f"value {i * 7919 % 10007}" for i in range(10_000)]},
        "300 objects": {"anyOf": keys},
        "119 lists": {"type": "array", "items": {"anyOf": lists}},
        "500 optional properties": _optional(500),
        "2000 optional properties": _optional(2000),
        "a tree": {**node, "$defs": {"t": {"anyOf": tree}}},
        "30 trees": {**node, "$defs": {"t": {"anyOf": [*alike, {"type": "integer"}]}}},
        "patterns of names": {"type": "object", "patternProperties": patterns, "additionalProperties": False},
    }


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        properties = {"a": schema, "b": {"type": "integer"}}
        schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema


def _optional(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(count)}}
