"""Texts and pairs are tokenized, and cut, as transformers does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from frontend_svc.pooling.parts import Parts, cut_text, tokenize_parts
from frontend_svc.text.tokenizer import load_tokenizer
from signalbox.errors import InvalidRequestError

CORPUS = ["the quick brown fox", "jumps over the lazy dog", "größe naïve 東京 🚂🚃 café"]


def make_tokenizer(style: str) -> Tokenizer:
    """A byte-level tokenizer that puts BERT's, RoBERTa's or no tokens around texts."""
    fast = Tokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=style == "roberta")
    fast.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>", "<pad>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    fast.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    )
    if style == "roberta":
        fast.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    elif style == "bert":
        fast.post_processor = processors.TemplateProcessing(
            single="<s>:0 $A:0 </s>:0",
            pair="<s>:0 $A:0 </s>:0 $B:1 </s>:1",
            special_tokens=[("<s>", 0), ("</s>", 1)],
        )
    return fast


def reference(fast: Tokenizer, parts: Parts) -> Any:
    """What transformers makes of it."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=fast, pad_token="<pad>")
    cut = {} if parts.max_tokens is None else {"truncation": True, "max_length": parts.max_tokens}
    return tokenizer(
        parts.first,
        parts.second,
        add_special_tokens=parts.add_special_tokens,
        return_token_type_ids=True,
        **cut,
    )


@pytest.mark.parametrize("style", ["bert", "roberta", "plain"])
@pytest.mark.parametrize("special", [True, False])
def test_as_transformers_tokenizes(style: str, special: bool) -> None:
    """LM13: single texts and pairs of all lengths, cut and not."""
    fast = make_tokenizer(style)
    random = np.random.default_rng(3)
    words = " ".join(CORPUS).split()

    def text() -> str:
        # transformers takes an empty second text for none.
        return " ".join(random.choice(words, random.integers(1, 12)))

    for _ in range(200):
        second = text() if random.integers(2) else None
        most = int(random.integers(5, 40)) if random.integers(3) else None
        parts = Parts(text(), second, special, most)
        tokens = tokenize_parts(fast, parts)
        expected = reference(make_tokenizer(style), parts)
        assert tokens.token_ids == expected["input_ids"], parts
        types = expected["token_type_ids"]
        # Without a rule for pairs there are no types that a model could have been trained with.
        assert style == "plain" or tokens.num_first_tokens == (types.index(1) if 1 in types else 0), parts


def test_a_document_is_cut_by_itself() -> None:
    fast = make_tokenizer("bert")
    query, document = "the quick fox", "the lazy dog jumps over the brown fox"
    short = tokenize_parts(fast, Parts(query, document, max_second_tokens=3))
    whole = tokenize_parts(fast, Parts(query, document))
    assert short.token_ids == [*whole.token_ids[: whole.num_first_tokens + 3], 1]
    text = cut_text(fast, document, 3)
    assert document.startswith(text)
    assert len(fast.encode(text, add_special_tokens=False)) == 3
    assert cut_text(fast, document, 100) == document
    assert cut_text(fast, "🚂🚃", 1) in ("", "🚂"), "no half characters"


def test_no_room_for_text() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        tokenize_parts(make_tokenizer("bert"), Parts("a", "b", max_tokens=3))
    assert caught.value.field == "truncate_prompt_tokens"


def test_a_tokenizers_own_cuts_and_fillings_are_left_out(tmp_path: Path) -> None:
    """Files of encoders tell of a length for training."""
    fast = make_tokenizer("bert")
    fast.enable_truncation(4)
    fast.enable_padding(length=16)
    fast.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    assert len(tokenizer.fast.encode("the quick brown fox jumps over the lazy dog").ids) > 8
    assert len(tokenizer.fast.encode("the").ids) == 3
