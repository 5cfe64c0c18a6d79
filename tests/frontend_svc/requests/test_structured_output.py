"""Forms are refused before their requests are accepted, and nobody waits for the bad ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from frontend_svc.requests import structured_output
from frontend_svc.requests.request import ClientRequest, FieldNames, Sampling, StructuredOutput
from frontend_svc.requests.structured_output import FormCheck, check_conflicts
from signalbox.cli.ring.ring import DEMO_MODEL
from signalbox.errors import InternalError, InvalidRequestError, ResourceExhaustedError, UnsupportedError
from signalbox.grammar import vetting
from signalbox.grammar.form import FormKind
from signalbox.grammar.limits import FormLimits

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
