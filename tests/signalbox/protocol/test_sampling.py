"""How ranges of settings read in sentences."""

from __future__ import annotations

import pytest

from signalbox.protocol.sampling import U32_MAX, Range


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        (Range(1, U32_MAX), "from 1 to 4294967295"),
        (Range(0, 2**64 - 1), "from 0 to 18446744073709551615"),
        (Range(0, 1, has_low=False), "above 0 to 1"),
        (Range(-0.5, 2.0), "from -0.5 to 2"),
    ],
    ids=str,
)
def test_whole_numbers_have_all_their_digits(numbers: Range, words: str) -> None:
    assert str(numbers) == words
