"""Reasoning that is bounded: whatever a model would write, with and without drafts, forms, preemptions and losses."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from frontend_svc.grammars.behind_reasoning import bind_form
from frontend_svc.requests.request import StructuredOutput
from frontend_svc.text.parsing.language import Language
from signalbox.grammar.form import FormKind
from signalbox.grammar.limits import FormLimits
from signalbox.v1 import generation_pb2
from tests.frontend_svc.grammars.vocabulary import EOS, make_vocabulary
from tests.worker_svc.core.test_constrained_rows import MaskedSim
from tests.worker_svc.drafting.local_ring import LocalRing
from worker_svc.core.batch import RunnerInfo
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.core.requests.grammar import GrammarTable
from worker_svc.core.requests.guarded import GuardedAutomaton
from worker_svc.core.requests.reasoning import MARGIN, ReasoningBudget, ReasoningGuard
from worker_svc.grammar.automaton import CompiledForm, MatcherAutomaton

V = 100
BEGIN, END = 7, 8
INFO = RunnerInfo(
    "sim", num_blocks=400, block_size=4, max_model_len=600, vocab_size=V, eos_token_ids=(), max_draft_tokens=4
)
PLAIN = ReasoningBudget(5, True, (BEGIN,), (END,))
HARMONY = ReasoningBudget(5, False, (1, 2, 3), (4, 5, 6, 1), frozenset({10, 11}))


def spent(tokens: list[int], budget: ReasoningBudget) -> int:
    """Tokens of reasoning, counted apart from the guard."""
    is_open, count, width = budget.is_open, 0, len(budget.begin)
    behind = 0
    for place, token in enumerate(tokens):
        if is_open and token == budget.end[0]:
            is_open, behind = False, place + 1
        elif is_open:
            count += 1
        elif place + 1 - behind >= width and tuple(tokens[place + 1 - width : place + 1]) == budget.begin:
            is_open = True
    return count


@pytest.mark.parametrize("budget", [PLAIN, HARMONY], ids=["plain", "harmony"])
@pytest.mark.parametrize("limit", [0, 1, 5, 80])
def test_no_output_reasons_longer_than_it_may(budget: ReasoningBudget, limit: int) -> None:
    """LM14: whatever is drawn of what is allowed, drafts included; nothing is forced before."""
    draw = random.Random(limit)
    budget = replace(budget, max_tokens=limit)
    few = [*budget.begin, *budget.end, 10, 50, 51]
    for _ in range(200):
        guard, tokens = ReasoningGuard(budget), list[int]()
        automaton = GuardedAutomaton(guard, None)
        while len(tokens) < 150:
            drafts = np.array(draw.choices(few, k=draw.randrange(4)), np.int32)
            drafts = drafts[: automaton.legal_drafts(drafts)]
            masks = np.zeros((len(drafts) + 1, -(-V // 32)), np.uint32)
            automaton.fill(drafts, masks)
            for row, wish in zip(masks, [*drafts.tolist(), draw.choice(few)], strict=True):
                allowed = [token for token in range(V) if row[token // 32] >> np.uint32(token % 32) & 1]
                token = wish if wish in allowed else draw.choice(allowed)
                assert len(allowed) == V or spent(tokens, budget) == limit
                tokens.append(token)
                automaton.advance(token)
                if token != wish:
                    break
        assert spent(tokens, budget) <= limit
        assert limit - spent(tokens, budget) == max(0, guard.num_left)


def test_the_end_is_forced_token_by_token() -> None:
    """LM14: a sequence of tokens, and what may follow it."""
    guard = ReasoningGuard(replace(HARMONY, max_tokens=1))
    for token in (1, 2, 3, 50):
        assert guard.allowed is None
        guard.advance(token)
    for token in HARMONY.end:
        assert guard.allowed == {token}
        guard.advance(token)
    assert guard.allowed == {10, 11}
    guard.advance(10)
    assert guard.allowed is None


def test_rows_are_masked_only_near_the_end_of_their_budget() -> None:
    """LM14: steps go on ahead of their tokens as long as nothing has to be forced."""
    table = GrammarTable(4, V)
    table.guard(2, ReasoningGuard(replace(PLAIN, max_tokens=MARGIN + 3)))
    assert table.followed[2] and not table.constrained[2]
    table.advance(2, [50, 51])
    assert not table.constrained[2]
    table.advance(2, [52])
    assert table.constrained[2] and not table.is_ready(2)
    table.clear(2)
    assert not table.followed.any() and not table.constrained.any()


class Cycle(Drafter):
    """Drafts what came some tokens ago."""

    def propose(self, slot: int, tokens: np.ndarray, limit: int) -> np.ndarray:  # type: ignore[type-arg]
        return np.asarray(tokens[-limit:] if limit > 0 else tokens[:0], np.int32)


def run_ring(
    budget: ReasoningBudget, prior: list[int], *, drafts: int = 0, depth: int = 1, blocks: int = 400
) -> list[list[int]]:
    ring = LocalRing(
        MaskedSim(replace(INFO, num_blocks=blocks)),
        Cycle() if drafts else None,
        depth=depth,
        num_drafts=drafts,
    )
    message = generation_pb2.ReasoningBudget(
        max_tokens=budget.max_tokens,
        is_open=budget.is_open,
        begin_token_ids=budget.begin,
        end_token_ids=budget.end,
        then_token_ids=budget.then,
    )
    clients = [
        ring.submit([20 + index, 21, 22, 23, 24], 150, prior=prior, budget=message) for index in range(4)
    ]
    free = ring.submit([30, 31], 150)
    ring.run()
    assert len(free.output) == 150
    return [client.output for client in clients]


@pytest.mark.parametrize("limit", [0, 3, 90])
def test_the_same_output_however_it_is_run(limit: int) -> None:
    """LM14: one by one, with drafts, with steps ahead, with too few blocks, and going on from another worker."""
    budget = replace(PLAIN, max_tokens=limit)
    expected = run_ring(budget, [])
    for output in expected:
        assert len(output) == 150 and spent(output, budget) <= limit and END in output
    assert run_ring(budget, [], depth=3) == expected
    assert run_ring(budget, [], blocks=90) == expected
    assert run_ring(budget, [], drafts=3) == expected
    cut = run_ring(budget, expected[0][:50])
    assert cut[0] == expected[0]


@pytest.mark.parametrize("limit", [0, 2, 20])
def test_a_form_behind_bounded_reasoning(limit: int, tmp_path: Path) -> None:
    """LM9, LM14: both bind; a character that was begun is ended before the reasoning is."""
    vocabulary = make_vocabulary(tmp_path / "tokenizer.json", special=["<think>", "</think>"])
    ids = vocabulary.token_ids
    language = Language("qwen3", "", ids)
    form = bind_form(StructuredOutput(FormKind.REGEX, "[ab]{3}"), language, within=True)
    begin, end, eos = ids["<think>"], ids["</think>"], ids[EOS]
    budget, draw = ReasoningBudget(limit, True, (begin,), (end,)), random.Random(limit)
    for _ in range(30):
        matcher = vocabulary.matcher(form)
        compiled = CompiledForm(matcher, matcher)
        inner = MatcherAutomaton(compiled, FormLimits(), frozenset({eos}), lambda: None)
        automaton, tokens = GuardedAutomaton(ReasoningGuard(budget), inner), list[int]()
        while not automaton.is_complete:
            masks = np.zeros((1, -(-(max(ids.values()) + 1) // 32)), np.uint32)
            automaton.fill(np.empty(0, np.int32), masks)
            allowed = [t for t in range(eos + 1) if masks[0, t // 32] >> np.uint32(t % 32) & 1]
            tokens.append(draw.choice(allowed))
            automaton.advance(tokens[-1])
        place = tokens.index(end)
        assert place <= limit + 3 and (place <= limit or max(tokens[:place]) > 127)
        assert len([token for token in tokens[place + 1 :] if token in vocabulary.spell("ab")]) == 3
