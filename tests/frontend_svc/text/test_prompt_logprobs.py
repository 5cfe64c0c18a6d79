"""Log-probabilities of a prompt reach the client once and whole, whatever is repeated or computed again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend_svc.text.prompt_logprobs import PromptLogprobs
from signalbox.v1 import generation_pb2


def chunk(start: int, end: int) -> list[generation_pb2.TokenLogprobs]:
    """Of the prompt tokens [start, end); each says which position it is of."""
    return [generation_pb2.TokenLogprobs(logprob=-position, rank=1) for position in range(start, end)]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=30), st.integers(1, 8))
def test_any_chunks_make_the_whole(chunks: list[tuple[int, int]], num_wanted: int) -> None:
    prompt, known, given_out = PromptLogprobs(num_wanted), 1, []
    for start, length in [*chunks, (1, num_wanted)]:
        if prompt.is_missing and start > known:
            with pytest.raises(ValueError, match="were lost"):
                prompt.add(start, chunk(start, start + length))
            continue
        given_out += prompt.add(start, chunk(start, start + length))
        known = max(known, start + length)
    assert [item.logprob for item in given_out] == [-position for position in range(1, num_wanted + 1)]
    assert not prompt.is_missing


def test_a_new_attempt_begins_anew() -> None:
    prompt = PromptLogprobs(3)
    assert prompt.add(1, chunk(1, 3)) == []
    prompt.restart()
    with pytest.raises(ValueError, match="1 to 2 were lost"):
        prompt.add(3, chunk(3, 4))
    assert len(prompt.add(1, chunk(1, 4))) == 3
    prompt.restart()
    assert prompt.add(1, chunk(1, 4)) == [], "the client has them already"


def test_a_prompt_of_one_token_has_none() -> None:
    assert not PromptLogprobs(0).is_missing
