"""Whatever the pieces, the text is the one-shot decode of all tokens."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers

from frontend_svc.text.detokenizer import ByteDetokenizer, Detokenizer, WindowDetokenizer, make_detokenizer
from frontend_svc.text.tokenizer import Tokenizer

CUTS = st.lists(st.integers(1, 5), min_size=1)
TEXTS = st.text(st.sampled_from("abc the\n éß東🚂👩‍🚀 ▁.,'"), max_size=40)


@pytest.fixture(scope="module")
def sentencepiece() -> Tokenizer:
    """Like Llama 2's: spaces as ▁, unknown characters as bytes, the leading space stripped."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcthe\n.,'"]
    tokens += ["▁t", "he", "▁the"]
    model = models.BPE(
        {token: i for i, token in enumerate(tokens)},
        [("▁", "t"), ("h", "e"), ("▁t", "he")],
        unk_token="<unk>",
        byte_fallback=True,
    )
    fast = FastTokenizer(model)
    fast.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    fast.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    fast.add_special_tokens(["<s>", "</s>"])
    return Tokenizer(fast, fast.to_str().encode(), {}, None)


@pytest.fixture(scope="module")
def wordpiece() -> Tokenizer:
    tokens = ["[UNK]", "[SEP]", "the", "a", "##b", "##c", ".", "don", "'", "t"]
    fast = FastTokenizer(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    fast.pre_tokenizer = pre_tokenizers.Whitespace()
    fast.decoder = decoders.WordPiece()
    fast.add_special_tokens(["[SEP]"])
    return Tokenizer(fast, fast.to_str().encode(), {}, None)


def detokenize(detokenizer: Detokenizer, token_ids: Sequence[int], cuts: Sequence[int]) -> str:
    pieces, start, index = [], 0, 0
    while start < len(token_ids):
        end = start + cuts[index % len(cuts)]
        pieces.append(detokenizer.push(token_ids[start:end]))
        start, index = end, index + 1
    return "".join(pieces) + detokenizer.flush()


@given(data=st.data(), cuts=CUTS)
def test_random_tokens_of_a_byte_level_tokenizer(
    tokenizer: Tokenizer, data: st.DataObject, cuts: list[int]
) -> None:
    assert tokenizer.token_bytes is not None
    ids = data.draw(st.lists(st.integers(0, tokenizer.fast.get_vocab_size() + 1), max_size=60))
    assert detokenize(ByteDetokenizer(tokenizer.token_bytes), ids, cuts) == tokenizer.decode(ids)


@given(text=TEXTS, cuts=CUTS)
def test_text_of_a_byte_level_tokenizer_in_windows(tokenizer: Tokenizer, text: str, cuts: list[int]) -> None:
    ids = tokenizer.fast.encode(text).ids
    assert detokenize(WindowDetokenizer(tokenizer), ids, cuts) == text


@given(text=TEXTS, cuts=CUTS)
def test_text_of_a_sentencepiece_tokenizer(sentencepiece: Tokenizer, text: str, cuts: list[int]) -> None:
    ids = sentencepiece.fast.encode(text).ids
    detokenizer = make_detokenizer(sentencepiece)
    assert isinstance(detokenizer, WindowDetokenizer)
    assert detokenize(detokenizer, ids, cuts) == sentencepiece.decode(ids)


@example(ids=[2, *[1] * 7, 2], cuts=[1])  # more skipped tokens than a context holds
@example(ids=[2, *[1] * 50, 2, 4, *[1] * 50, 3], cuts=[1])
@given(ids=st.lists(st.integers(1, 9), max_size=40), cuts=CUTS)
def test_random_tokens_of_a_wordpiece_tokenizer(
    wordpiece: Tokenizer, ids: list[int], cuts: list[int]
) -> None:
    assert detokenize(make_detokenizer(wordpiece), ids, cuts) == wordpiece.decode(ids)


def test_an_incomplete_character_is_held_back(tokenizer: Tokenizer) -> None:
    train = "🚂".encode()
    ids = [next(i for i in range(400) if tokenizer.piece(i) == bytes([byte])) for byte in train]
    detokenizer = make_detokenizer(tokenizer)
    assert [detokenizer.push([token]) for token in ids] == ["", "", "", "🚂"]
    detokenizer.push(ids[:2])
    assert detokenizer.flush() == "\ufffd"


def test_special_tokens_are_no_text(tokenizer: Tokenizer) -> None:
    eos = tokenizer.eos_token_id
    assert eos is not None
    assert make_detokenizer(tokenizer).push([eos]) == ""
    assert tokenizer.piece(eos) == b"<eos>"


def test_the_window_stays_short(sentencepiece: Tokenizer) -> None:
    detokenizer = WindowDetokenizer(sentencepiece)
    for token in sentencepiece.fast.encode("the 東京 " * 300).ids + [3] * 300 + [1] * 300:
        detokenizer.push([token])
        assert len(detokenizer._window) <= 64


@pytest.mark.parametrize("name", ["tokenizer", "sentencepiece", "wordpiece"])
@given(data=st.data(), cuts=CUTS)
def test_special_tokens_are_text_where_they_are_wanted(
    request: pytest.FixtureRequest, name: str, data: st.DataObject, cuts: list[int]
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(name)
    parts = data.draw(st.lists(TEXTS | st.sampled_from(sorted(tokenizer.special_ids)), max_size=8))
    texts = [[part] if isinstance(part, int) else tokenizer.fast.encode(part).ids for part in parts]
    token_ids = [token for ids in texts for token in ids]
    expected = tokenizer.fast.decode(token_ids, skip_special_tokens=False)
    assert detokenize(make_detokenizer(tokenizer, with_special=True), token_ids, cuts) == expected
