"""Forms are tried in a process of their own: what is hostile there harms nobody."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from signalbox.cli.ring.ring import DEMO_MODEL
from signalbox.grammar import vetting
from signalbox.grammar.form import MAX_FORM_BYTES, Form, FormError, FormKind
from signalbox.grammar.limits import FormLimits
from signalbox.grammar.vetting import Vetter

DEEP = 3000
NESTED_RULES = "start: r0\n" + "\n".join(f"r{i}: r{i + 1}" for i in range(DEEP)) + f'\nr{DEEP}: "a"'
ENDLESS = "start: W\nW: ~/(.*a.{20}b.*)/ & /(a|b){100}/"
TAG = {
    "type": "structural_tag",
    "structures": [{"begin": "<tool>get", "schema": {"type": "object"}, "end": "</tool>"}],
    "triggers": ["<tool>"],
}


@pytest.fixture(scope="module")
def vetter() -> Iterator[Vetter]:
    vetter = Vetter(DEMO_MODEL / "tokenizer.json", FormLimits(), eos_token_ids=(0,))
    yield vetter
    vetter.close()


def schema(value: object) -> Form:
    return Form(FormKind.JSON_SCHEMA, json.dumps(value))


@pytest.mark.parametrize(
    "form",
    [
        schema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
        schema(True),
        schema(
            {"$ref": "#/$defs/node", "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}}}
        ),
        Form(FormKind.JSON_OBJECT),
        Form(FormKind.REGEX, r"^\d{4}-[0-9/]+\n$"),
        Form(FormKind.GRAMMAR, 'root ::= "a" b*\nb ::= [0-9] ","'),
        Form(FormKind.GRAMMAR, 'start: "a" /b+/'),
        Form(FormKind.CHOICE, choices=("yes", 'a "quote"', "\\ / \n \x7f é 😀", "")),
        Form(FormKind.CHOICE, choices=tuple(f"value {i}" for i in range(3000))),
        Form(FormKind.STRUCTURAL_TAG, json.dumps(TAG)),
    ],
    ids=lambda form: form.kind.value,
)
def test_what_can_be_followed_becomes_a_grammar(vetter: Vetter, form: Form) -> None:
    assert vetter.recall(form) is None
    grammar = vetter.vet(form)
    assert grammar and vetter.recall(form) == grammar


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        (Form(FormKind.REGEX, "("), "unclosed group"),
        (Form(FormKind.REGEX, "a(?=b)"), "look-ahead"),
        (Form(FormKind.REGEX, r"(a)\1"), "backreferences"),
        (Form(FormKind.REGEX, "a" + "{2}" * 20), "more than form_step_lexer_fuel = 200000"),
        (Form(FormKind.GRAMMAR, "nonsense"), "neither EBNF nor Lark"),
        (Form(FormKind.GRAMMAR, 'root ::= "a" missing'), "missing"),
        (Form(FormKind.GRAMMAR, "root ::= " + "(" * DEEP + '"a"' + ")" * DEEP), "nested too deeply"),
        (Form(FormKind.GRAMMAR, "start: e\ne: e"), "no output satisfies it"),
        (Form(FormKind.JSON_SCHEMA, "{"), "is not JSON"),
        (Form(FormKind.JSON_SCHEMA, "[" * 5000), "nested too deeply"),
        (schema([]), "must be a JSON object"),
        (schema({"type": "array", "uniqueItems": True}), 'Unimplemented keys: ["uniqueItems"]'),
        (schema({"type": "array", "uniqueItems": True, "x-guidance": {"lenient": True}}), "uniqueItems"),
        (schema({"type": "string", "format": "colour"}), "Unknown format"),
        (schema({"$ref": "#/$defs/nothing"}), "does not exist"),
        (schema({"$ref": "https://example.org/schema.json"}), "example.org"),
        (schema({"type": "integer", "minimum": 5, "maximum": 1}), "Unsatisfiable"),
        (schema({"$ref": "#"}), "no output satisfies it"),
        (schema({"type": "object", "properties": {f"p{i}": {} for i in range(1500)}}), "items"),
        (Form(FormKind.CHOICE), "has no choices"),
        (Form(FormKind.CHOICE, choices=("\ud800",)), "no valid Unicode"),
        (Form(FormKind.STRUCTURAL_TAG, "{}"), '"structures" and "triggers"'),
        (Form(FormKind.STRUCTURAL_TAG, json.dumps({**TAG, "format": {}})), "not supported: format"),
        (Form(FormKind.STRUCTURAL_TAG, json.dumps({**TAG, "triggers": ["<call>"]})), "no trigger starts"),
        (Form(FormKind.REGEX, "a" * (MAX_FORM_BYTES + 1)), f"at most {MAX_FORM_BYTES}"),
    ],
    ids=lambda value: value.kind.value if isinstance(value, Form) else "",
)
def test_what_cannot_be_followed_is_refused_with_the_reason(vetter: Vetter, form: Form, reason: str) -> None:
    with pytest.raises(FormError) as refusal:
        vetter.vet(form)
    assert reason in str(refusal.value)
    assert len(str(refusal.value)) < 500 and "\n" not in str(refusal.value)


def test_a_form_that_crashes_the_compiler_is_refused_and_the_next_one_is_vetted(vetter: Vetter) -> None:
    """G1."""
    with pytest.raises(FormError, match="nested too deeply"):
        vetter.vet(Form(FormKind.GRAMMAR, NESTED_RULES))
    assert vetter.vet(Form(FormKind.REGEX, "after the crash"))


def test_a_machine_too_busy_to_tell_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vetting, "WALL_S", 0.3)
    vetter = Vetter(DEMO_MODEL / "tokenizer.json", FormLimits(), eos_token_ids=(0,))
    for _ in range(2):
        with pytest.raises(TimeoutError, match="too busy"):
            vetter.vet(Form(FormKind.GRAMMAR, ENDLESS))
    assert vetter.vet(Form(FormKind.REGEX, "after that"))
    vetter.close()


def test_a_form_that_takes_too_long_is_refused_once_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vetting, "CPU_S", 0.3)
    others = child_processes()
    vetter = Vetter(DEMO_MODEL / "tokenizer.json", FormLimits(), eos_token_ids=(0,))
    with pytest.raises(FormError, match="takes too long"):
        vetter.vet(Form(FormKind.GRAMMAR, ENDLESS))
    assert child_processes() == others, "the process that was lost on it is gone"
    with pytest.raises(FormError, match="takes too long"):
        vetter.vet(Form(FormKind.GRAMMAR, ENDLESS))
    assert child_processes() == others, "the verdict was remembered"
    assert vetter.vet(Form(FormKind.REGEX, "after the hang"))
    vetter.close()
    assert child_processes() == others


def test_closing_gives_up_the_form_that_is_being_tried() -> None:
    others = child_processes()
    vetter = Vetter(DEMO_MODEL / "tokenizer.json", FormLimits(), eos_token_ids=(0,))
    vetter.vet(Form(FormKind.REGEX, "warm"))
    (process,) = set(child_processes()) - set(others)
    outcome: list[BaseException] = []

    def ask() -> None:
        try:
            vetter.vet(Form(FormKind.GRAMMAR, ENDLESS))
        except RuntimeError as error:
            outcome.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    used = process.cpu_times().user
    while process.cpu_times().user < used + 0.2:
        time.sleep(0.01)  # it is at it
    vetter.close()
    thread.join(30)
    assert "closed" in str(outcome[0]) and child_processes() == others


def test_a_missing_tokenizer_is_no_fault_of_the_form() -> None:
    vetter = Vetter(DEMO_MODEL / "nothing.json", FormLimits())
    with pytest.raises(RuntimeError, match="ended with status"):
        vetter.vet(Form(FormKind.REGEX, "a"))


def child_processes() -> list[psutil.Process]:
    """Vetting processes of this one."""
    children = psutil.Process().children()
    return [child for child in children if "signalbox.grammar.vetter" in " ".join(child.cmdline())]
