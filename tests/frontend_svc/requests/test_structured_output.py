"""Forms are refused before their requests are accepted, and nobody waits for the bad ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tokenizers import Tokenizer

from frontend_svc.grammars.behind_reasoning import bind_form
from frontend_svc.requests import structured_output
from frontend_svc.requests.request import ClientRequest, FieldNames, Sampling, StructuredOutput
from frontend_svc.requests.structured_output import FormCheck, check_conflicts, check_reasoning
from frontend_svc.text.parsing.budget import ReasoningBudget
from frontend_svc.text.parsing.language import Language
from signalbox.cli.ring.ring import DEMO_MODEL
from signalbox.errors import InternalError, InvalidRequestError, ResourceExhaustedError, UnsupportedError
from signalbox.grammar import vetting
from signalbox.grammar.form import FormKind
from signalbox.grammar.limits import FormLimits
from signalbox.grammar.token_rules import TokenRules

TOKENIZER = Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))
ENDLESS = "start: W\nW: ~/(.*a.{%d}b.*)/ & /(a|b){100}/"


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Iterator[FormCheck]:
    monkeypatch.setattr(vetting, "CPU_S", 0.5)
    check = FormCheck(DEMO_MODEL / "tokenizer.json", 0, FormLimits())
    yield check
    check.close()


def regex(text: str, field: str = "guided_regex") -> StructuredOutput:
    return StructuredOutput(FormKind.REGEX, text, field=field)


def endless(number: int) -> StructuredOutput:
    return StructuredOutput(FormKind.GRAMMAR, ENDLESS % number, field="guided_grammar")


async def test_a_form_that_can_be_followed_passes_at_once_the_second_time(check: FormCheck) -> None:
    await check(regex("[a-z]+"))
    again = check(regex("[a-z]+"))
    with pytest.raises(StopIteration):
        again.send(None)  # did not wait for anything


@pytest.mark.parametrize("field", ["guided_regex", "sampling.structured_output.regex"])
async def test_a_bad_form_is_refused_by_the_name_of_its_field(check: FormCheck, field: str) -> None:
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match=f"^{field} cannot be followed: .*unclosed") as refusal:
            await check(regex("(", field))
        assert refusal.value.field == field


async def test_the_event_loop_goes_on_while_a_form_hangs(check: FormCheck) -> None:
    hanging = asyncio.create_task(check(endless(20)))
    rounds = 0
    while not hanging.done():
        await asyncio.sleep(0.01)
        rounds += 1
    with pytest.raises(InvalidRequestError, match="takes too long"):
        await hanging
    assert rounds > 10
    await check(regex("a"))


async def test_forms_do_not_pile_up(check: FormCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structured_output, "MAX_WAITING", 2)
    await check(regex("known"))
    waiting = [asyncio.create_task(check(endless(number))) for number in (20, 21)]
    await asyncio.sleep(0)
    with pytest.raises(ResourceExhaustedError, match=r"2 of 2 new forms wait .*; try again in 1 s"):
        await check(regex("one more"))
    await check(regex("known"))
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [InvalidRequestError] * 2
    await check(regex("one more"))


async def test_tenants_take_turns(check: FormCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, whoever sent many hostile forms had everybody else's refused (AK5)."""
    monkeypatch.setattr(structured_output, "MAX_WAITING", 3)
    hostile = [asyncio.create_task(check(endless(number), "hostile")) for number in (20, 21, 22)]
    await asyncio.sleep(0)
    with pytest.raises(ResourceExhaustedError, match="3 of 3"):
        await check(regex("b"), "hostile")
    await check(regex("a"), "other")
    assert [task.done() for task in hostile] == [True, False, False]
    hostile[1].cancel()
    results = await asyncio.gather(*hostile, return_exceptions=True)
    assert [type(result) for result in results] == [
        InvalidRequestError,
        asyncio.CancelledError,
        InvalidRequestError,
    ]
    await check(regex("b"), "hostile")


async def test_a_check_that_cannot_be_made_is_no_fault_of_the_client() -> None:
    check = FormCheck(DEMO_MODEL / "nothing.json", 0, FormLimits())
    with pytest.raises(InternalError, match="could not be checked"):
        await check(regex("a"))
    check.close()


@pytest.mark.parametrize("options", [{"min_tokens": 1}, {"ignore_eos": True}])
def test_what_contradicts_a_form_is_refused_by_name(options: dict[str, int]) -> None:
    request = ClientRequest(
        "x", Sampling(structured_output=regex("a"), **options), names=FieldNames(sampling_prefix="sampling.")
    )  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError) as refusal:
        check_conflicts(request)
    assert refusal.value.field == f"sampling.{next(iter(options))}"
    check_conflicts(ClientRequest("x", Sampling(**options)))  # type: ignore[arg-type]
    check_conflicts(ClientRequest("x", Sampling(structured_output=regex("a"))))


def rules_of(*allowed: int, bad: tuple[tuple[int, ...], ...] = ()) -> TokenRules:
    return TokenRules(tuple(sorted(allowed)), bad)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (StructuredOutput(FormKind.JSON_OBJECT, field="response_format"), "0123456789"),
        (StructuredOutput(FormKind.CHOICE, choices=("yes", "no"), field="guided_choice"), "yn"),
        (regex("[0-9]{3}a"), "01"),
        (regex("x{20}[ab]"), "x"),
    ],
)
async def test_allowed_tokens_that_contradict_a_form_are_refused_with_both_fields(
    check: FormCheck, form: StructuredOutput, text: str
) -> None:
    await check(form)
    ids = TOKENIZER.encode(text).ids
    single = {TOKENIZER.token_to_id(character) for character in text} | set(ids)
    with pytest.raises(InvalidRequestError, match=f"^{form.field} and allowed_token_ids cannot") as refusal:
        await check(form, "", rules_of(*single), ("allowed_token_ids",))
    assert refusal.value.field == form.field


async def test_bad_words_that_leave_no_output_are_refused(check: FormCheck) -> None:
    form, tokens = regex("[ab]"), [TOKENIZER.token_to_id(letter) for letter in "ab"]
    with pytest.raises(InvalidRequestError, match=r"^guided_regex and bad_words cannot"):
        await check(form, "", rules_of(bad=tuple((token,) for token in tokens)), ("bad_words",))
    await check(form, "", rules_of(bad=((tokens[0],),)), ("bad_words",))
    await check(regex("[ab]*"), "", rules_of(bad=tuple((token,) for token in tokens)), ("bad_words",))


async def test_a_form_behind_reasoning_is_refused_when_nothing_satisfies_it(check: FormCheck) -> None:
    """Before, its output ended as 500 where its reasoning did."""
    language = Language(reasoning="qwen3")
    lost = StructuredOutput(FormKind.GRAMMAR, 'start: "a" B\nB: /b+/ & ~/b*/', field="guided_grammar")
    for form in (lost, bind_form(lost, language, within=False), bind_form(lost, language, within=True)):
        with pytest.raises(InvalidRequestError, match=r"^guided_grammar cannot be followed"):
            await check(form)


@pytest.mark.parametrize(
    ("sampling", "field"), [({"allowed_token_ids": (5, 6)}, "allowed_token_ids"), ({}, "bad_words")]
)
def test_what_ends_bounded_reasoning_may_not_be_forbidden(sampling: Sampling, field: str) -> None:
    budget = ReasoningBudget(3, False, (8,), (9,), field="thinking_token_budget")
    request = ClientRequest([1], sampling, reasoning=budget, names=FieldNames(sampling_prefix="s."))
    rules = TokenRules(sampling.get("allowed_token_ids", ()), () if sampling else ((9,),))
    with pytest.raises(UnsupportedError, match=f"^s.{field} .* thinking_token_budget") as refusal:
        check_reasoning(request, rules)
    assert refusal.value.field == f"s.{field}"
    check_reasoning(request, TokenRules((5, 9), ((9, 5),)))
