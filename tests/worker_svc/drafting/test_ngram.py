"""Prompt lookup: what it proposes, and that it looks at each token once."""

from __future__ import annotations

import numpy as np
import pytest

from worker_svc.core.drafts.drafter import I32, DraftRows
from worker_svc.core.drafts.ngram import NgramDrafter
from worker_svc.core.drafts.ngram_index import NgramIndex


def tokens_of(*values: int) -> I32:
    return np.array(values, np.int32)


def propose(drafter: NgramDrafter, tokens: list[int], limit: int = 3, slot: int = 0) -> list[int]:
    return drafter.propose(slot, tokens_of(*tokens), limit).tolist()


def lookup(tokens: list[int], shortest: int, longest: int, limit: int) -> list[int]:
    """The plain way: every earlier position is looked at, the latest first."""
    best, best_length = 0, shortest - 1
    for end in range(len(tokens) - 1, 0, -1):
        length = 0
        while length < min(longest, end) and tokens[end - 1 - length] == tokens[-1 - length]:
            length += 1
        if length > best_length:
            best, best_length = end, length
    found = list(tokens)
    for offset in range(limit if best else 0):
        found.append(found[best + offset])
    return found[len(tokens) :]


def test_what_followed_the_end_before_is_proposed() -> None:
    assert propose(NgramDrafter(2, 4), [1, 2, 3, 4, 5, 9, 1, 2, 3]) == [4, 5, 9]


def test_the_longest_match_wins_and_among_equals_the_latest() -> None:
    drafter = NgramDrafter(1, 3)
    assert propose(drafter, [7, 1, 2, 50, 1, 2, 60, 8, 7, 1, 2], 1) == [50]
    assert propose(NgramDrafter(1, 2), [7, 1, 2, 50, 1, 2, 60, 8, 7, 1, 2], 1) == [60]


def test_no_match_gives_no_drafts() -> None:
    assert propose(NgramDrafter(2, 4), [1, 2, 3, 4]) == []
    assert propose(NgramDrafter(2, 4), [5]) == []
    assert propose(NgramDrafter(2, 4), [5, 5]) == []


def test_what_repeats_up_to_the_end_goes_on() -> None:
    assert propose(NgramDrafter(2, 4), [3, 1, 2, 1, 2, 1, 2], 5) == [1, 2, 1, 2, 1]


@pytest.mark.parametrize("seed", range(5))
def test_proposals_equal_those_of_a_search_through_everything(seed: int) -> None:
    """Token by token, and by several at a time, as accepted drafts come."""
    random = np.random.default_rng(seed)
    tokens = random.integers(0, 4, 120).tolist()
    drafter, compared, size = NgramDrafter(2, 6), 0, 1
    while size <= len(tokens):
        # Few enough repetitions for the search not to be cut short.
        if sum(tokens[i : i + 2] == tokens[size - 2 : size] for i in range(size)) < 16:
            expected = lookup(tokens[:size], 2, 6, 4)
            assert propose(drafter, tokens[:size], 4) == expected
            compared += bool(expected)
        size += int(random.integers(1, 5))
    assert compared > 20


def test_each_token_is_indexed_once() -> None:
    index = NgramIndex(2, 4)
    index.find(np.arange(1000, dtype=np.int32))
    index.find(np.arange(1001, dtype=np.int32))
    assert len(index._earlier) == 1001
    assert len(index._latest) == 999


def test_a_slot_s_next_request_is_not_taken_for_the_last_one() -> None:
    drafter = NgramDrafter(2, 4)
    assert propose(drafter, [1, 2, 3, 1, 2]) == [3, 1, 2]
    drafter.forget(0)
    assert propose(drafter, [1, 2, 9, 1, 2]) == [9, 1, 2]


def test_rows_without_a_limit_cost_nothing() -> None:
    drafter = NgramDrafter(1, 4)
    tokens = np.tile(tokens_of(1, 2, 1, 2, 1, 2), (3, 1))
    rows = DraftRows(
        np.array([0, 2]), np.array([0, 2]), tokens, np.array([6, 6, 6], np.int32), np.zeros((3, 1), np.int32)
    )
    assert [draft.tolist() for draft in drafter.propose_all(rows)] == [[], [1, 2]]
    assert list(drafter._indexes) == [2]
