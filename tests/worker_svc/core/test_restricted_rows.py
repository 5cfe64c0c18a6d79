"""Rows whose form and whose other fields both forbid tokens: what is left is chosen, or the request ends by itself."""

from __future__ import annotations

import numpy as np
import pytest

from signalbox.protocol.enums import FinishReason
from tests.worker_svc.core.test_constrained_rows import FORM, PROMPT, Bench, Guesser, Ladder, V
from worker_svc.core.requests.grammar import GrammarTable
from worker_svc.core.requests.reasoning import ReasoningBudget, ReasoningGuard
from worker_svc.core.requests.restricted import Restriction
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.core.step import NewRequest, RequestRef

EOS = 99


def add(bench: Bench, sets: list[set[int]], **fields: object) -> None:
    """A request with a ladder for a form."""
    params = SamplingParams(**fields)  # type: ignore[arg-type]
    drafts = 4 if bench.core.drafting else 0
    ref = RequestRef("r0", 1, "f")
    tokens = np.array(PROMPT, np.int32)
    bench.core.add(NewRequest(0, ref, tokens, 0, 20, params, b"", max_draft_tokens=drafts, form=FORM))
    assert bench.core.take_grammar(0, ref, Ladder(sets))
    bench.start(0)


@pytest.fixture(params=[False, True], ids=["plain", "drafts"])
def bench(request: pytest.FixtureRequest) -> Bench:
    bench = Bench(Guesser([1, 10, 20, 30, 40, 50]) if request.param else None)
    bench.core._grammars._ends = (EOS,)
    return bench


def test_both_have_to_allow_a_token(bench: Bench) -> None:
    add(bench, [{1, 2}, {10}, {20, 21}], allowed_token_ids=(2, 10, 21, 30))
    bench.run()
    assert (bench.output[0], bench.ends[0][0]) == ([2, 10, 21], FinishReason.STOP)


def test_a_bad_sequence_is_not_completed(bench: Bench) -> None:
    add(bench, [{1}, {10}, {20, 21}], bad_token_sequences=((10, 20), (9,)))
    bench.run()
    assert bench.output[0] == [1, 10, 21]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"allowed_token_ids": (1, 10, 33)}, "allowed_token_ids"),
        ({"bad_token_sequences": ((1, 10, 20),)}, "bad_words"),
    ],
)
def test_a_dead_end_keeps_the_output_and_names_both_fields(
    bench: Bench, fields: dict[str, object], name: str
) -> None:
    """Before, the sampler chose a token that the form forbids, and the request ended with an InternalError."""
    add(bench, [{1}, {10}, {20}, {30}], **fields)
    bench.run()
    reason, count, failure = bench.ends[0]
    assert (bench.output[0], reason, count) == ([1, 10], FinishReason.ERROR, 2)
    assert failure is not None
    assert (failure.code, failure.field) == ("DeadEndError", "structured_output")
    assert failure.message == f"structured_output and {name}: no token can follow output token 2"


def test_a_request_that_cannot_begin_is_the_clients_fault(bench: Bench) -> None:
    add(bench, [{1}, {10}], allowed_token_ids=(10,))
    reason, count, failure = bench.ends[0]
    assert (reason, count) == (FinishReason.ERROR, 0)
    assert failure is not None
    assert (failure.code, failure.message) == (
        "InvalidRequestError",
        "structured_output and allowed_token_ids: no output can begin",
    )


def test_a_form_without_any_token_is_a_dead_end_by_itself(bench: Bench) -> None:
    add(bench, [{1}, {10}, set(), {30}])
    bench.run()
    failure = bench.ends[0][2]
    assert failure is not None
    assert failure.message == "structured_output: no token can follow output token 2"


def test_an_output_that_may_end_ends_where_nothing_else_is_left(bench: Bench) -> None:
    add(bench, [{1}, {10}, {20, EOS}, {30}], allowed_token_ids=(1, 10, 30))
    bench.run()
    assert (bench.output[0], bench.ends[0]) == ([1, 10], (FinishReason.STOP, 2, None))


def test_what_would_leave_no_allowed_token_gives_way(bench: Bench) -> None:
    add(bench, [{1}, {10}], allowed_token_ids=(1, 10), bad_token_sequences=((1,), (10,)))
    bench.run()
    assert bench.output[0] == [1, 10]


def test_a_forced_end_of_reasoning_gives_way_to_what_is_forbidden() -> None:
    """Before, no token was left, and the sampler took token 0."""
    table = GrammarTable(1, V)
    table.restrict(0, Restriction.after(SamplingParams(allowed_token_ids=(5, 6)), []))
    table.guard(0, ReasoningGuard.after(ReasoningBudget(0, True, (8,), (9,)), []))
    masks = table.masks(np.zeros(1, np.int32), np.zeros(1, np.int32), None)
    assert masks is not None
    bits = masks.bits()[0]
    assert [t for t in range(V) if bits[t // 32] >> np.uint32(t % 32) & 1] == [5, 6]
