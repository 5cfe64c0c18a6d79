"""What one token stands for at most, found in tokenizer.json and tried on the tokenizer itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from frontend_svc.text.longest_token import longest_token

TEXTS = ["a" * 500, " " * 500, "\n" * 333, "größe 🚂 " * 40, "\u0391\u0313\u0300\u0345" * 60, "e\u0301" * 200]


def byte_level(**settings: Any) -> Tokenizer:
    """Of few merges; one of its tokens is a run of 64 letters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\d"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(["a" * 64, "hello hello", " " * 16], trainer)
    for name, value in settings.items():
        setattr(tokenizer, name, value)
    return tokenizer


def bound_of(tokenizer: Tokenizer) -> int | None:
    return longest_token(json.loads(tokenizer.to_str()))


@pytest.mark.parametrize("normalizer", [None, normalizers.NFC()])
@pytest.mark.parametrize("text", TEXTS)
def test_no_token_stands_for_more(normalizer: Any, text: str) -> None:
    tokenizer = byte_level(**({"normalizer": normalizer} if normalizer is not None else {}))
    tokenizer.add_tokens(["<a long token of its own that is one>"])
    bound = bound_of(tokenizer)
    assert bound is not None and bound >= 64
    assert len(text) <= bound * len(tokenizer.encode(text).ids)


@pytest.mark.parametrize(
    "settings",
    [
        {"normalizer": normalizers.Strip()},
        {"normalizer": normalizers.NFKC()},
        {"normalizer": normalizers.Replace(Regex(" +"), " ")},
        {"normalizer": normalizers.Replace("aaaa", "a")},
        {"pre_tokenizer": pre_tokenizers.Whitespace()},
        {
            "pre_tokenizer": pre_tokenizers.Sequence(
                [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel()]
            )
        },
    ],
)
def test_what_drops_characters_has_no_bound(settings: dict[str, Any]) -> None:
    assert bound_of(byte_level(**settings)) is None


def test_an_added_token_that_takes_spaces_beside_it_has_no_bound() -> None:
    tokenizer = byte_level()
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=True)])
    assert bound_of(tokenizer) is None


def test_words_that_are_one_unknown_token_have_no_bound() -> None:
    assert bound_of(Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))) is None
    assert longest_token({}) is None
