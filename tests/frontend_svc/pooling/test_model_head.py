"""What the files of a model tell of its head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frontend_svc.pooling.cosine import dot
from frontend_svc.pooling.model_head import QWEN3_RERANKER, ModelHead, read_model_head
from signalbox.errors import StartupError


def head_of(directory: Path, **config: Any) -> ModelHead:
    (directory / "config.json").write_text(json.dumps(config))
    return read_model_head(directory)


def test_labels_have_their_names_in_order(tmp_path: Path) -> None:
    assert read_model_head(tmp_path) == ModelHead()
    head = head_of(tmp_path, id2label={"1": "good", "0": "bad"})
    assert [head.label(index) for index in range(3)] == ["bad", "good", "LABEL_2"]
    for odd in ({"a": "b"}, {"1": "x"}, ["x"]):
        assert head_of(tmp_path, id2label=odd).label(0) == "LABEL_0"
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(StartupError, match="not a JSON object"):
        read_model_head(tmp_path)


def test_a_reranker_by_words_has_its_form(tmp_path: Path) -> None:
    """The text that the model card of Qwen3-Reranker gives, character by character."""
    assert head_of(tmp_path, model_type="qwen3").pair_template is None
    head = head_of(tmp_path, model_type="qwen3", classifier_from_token=["no", "yes"])
    assert head.pair_template is QWEN3_RERANKER
    assert head_of(tmp_path, model_type="gemma", classifier_from_token=["Yes"]).pair_template is None
    (tmp_path / "1_LogitScore").mkdir()
    (tmp_path / "1_LogitScore" / "config.json").write_text("{}")
    assert head_of(tmp_path, model_type="qwen3").pair_template is QWEN3_RERANKER
    assert QWEN3_RERANKER.render("Q?", "D.", None) == (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct"
        ' provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
        "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
        "<Query>: Q?\n<Document>: D.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    assert "<Instruct>: Find code\n" in QWEN3_RERANKER.render("Q?", "D.", "Find code")


def test_products() -> None:
    from array import array  # noqa: PLC0415

    assert dot(array("f", [1, 2, 3]).tobytes(), array("f", [4, 5, 6]).tobytes()) == 32
