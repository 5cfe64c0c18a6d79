"""Stop strings are found whatever the pieces, against a search by brute force."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from frontend_svc.text.certain import Certain
from frontend_svc.text.stop_strings import Found, StopStrings
from frontend_svc.text.text_stream import TextStream
from frontend_svc.text.tokenizer import Tokenizer
from tests.frontend_svc.helpers import character_ids

ALPHABET = st.text("ab", max_size=12)
STOPS = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4, unique=True)


def search(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Reads character by character; of several stop strings that end together the longest counts."""
    for end in range(len(text) + 1):
        if found := [stop for stop in stops if text[:end].endswith(stop)]:
            stop = max(found, key=len)
            return text[: end - len(stop)], stop
    return text, None


@given(pieces=st.lists(ALPHABET), stops=STOPS)
def test_like_brute_force(pieces: list[str], stops: list[str]) -> None:
    searcher = StopStrings(tuple(stops))
    sent, found = "", None
    for piece in pieces:
        certain, found = searcher.push(piece)
        sent += certain
        if found is not None:
            break
    else:
        sent += searcher.flush()
    assert (sent, found) == search("".join(pieces), stops)


@given(text=ALPHABET, stops=STOPS)
def test_no_more_is_held_back_than_may_begin_a_stop_string(text: str, stops: list[str]) -> None:
    searcher = StopStrings(tuple(stops))
    certain, found = searcher.push(text)
    held = searcher.flush()
    if found is None:
        assert certain + held == text
        assert not held or any(stop.startswith(held) for stop in stops)


def test_counts_tokens_up_to_the_one_that_completes(tokenizer: Tokenizer) -> None:
    ids = character_ids(tokenizer, "abcSTOPde")
    stream = TextStream(tokenizer, ["STOP"])
    assert stream.push(ids[:5]) == Certain("abc")
    assert stream.push(ids[5:]) == Certain("", Found("STOP", 2))


def test_what_was_held_back_comes_at_the_end(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer, ["STOP"])
    assert stream.push(character_ids(tokenizer, "aST")) == Certain("a")
    assert stream.flush() == Certain("ST")
