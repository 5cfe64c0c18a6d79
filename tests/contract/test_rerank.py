"""Rerankers and classifiers in rings of real processes: Cohere's and OpenAI's SDKs get what transformers computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from frontend_svc.pooling.model_head import QWEN3_RERANKER
from tests.e2e.conftest import StartRing
from tools.random_heads import make_head_model

pytestmark = pytest.mark.slow

QUERY = "w5 w6 w7"
DOCUMENTS = [" ".join(f"w{(7 * index + step) % 400}" for step in range(3 + 9 * index)) for index in range(12)]
TOLERANCE = 2e-4
"""In float32, over a ring; what a score is made of is compared more closely beside the runner."""


def load(directory: Path, model_class: Any) -> tuple[Any, Any]:
    tokenizer = AutoTokenizer.from_pretrained(directory)
    return tokenizer, model_class.from_pretrained(directory, dtype=torch.float32).eval()


@torch.inference_mode()
def scores_of(directory: Path) -> list[float]:
    """What a cross-encoder makes of the pairs in one padded batch."""
    tokenizer, model = load(directory, AutoModelForSequenceClassification)
    batch = tokenizer([QUERY] * len(DOCUMENTS), DOCUMENTS, padding=True, return_tensors="pt")
    return model(**batch).logits[:, 0].sigmoid().tolist()  # type: ignore[no-any-return]


def assert_order(results: list[tuple[int, float]], expected: list[float]) -> None:
    assert sorted(index for index, _ in results) == list(range(len(expected)))
    assert [score for _, score in results] == sorted((score for _, score in results), reverse=True)
    for index, score in results:
        assert score == pytest.approx(expected[index], abs=TOLERANCE)


def test_a_cross_encoder_behind_coheres_sdk(start_ring: StartRing, tmp_path: Path) -> None:
    """LM13."""
    directory = make_head_model("bert-cross-encoder", tmp_path / "tiny", seed=1)
    ring = start_ring("--model", str(directory), "--worker-set", "dtype=float32")
    expected = scores_of(directory)
    body = {"query": QUERY, "documents": DOCUMENTS}
    answer = httpx.post(f"{ring.url}/v1/rerank", json=body, timeout=30).json()
    assert_order([(each["index"], each["relevance_score"]) for each in answer["results"]], expected)
    data = httpx.post(f"{ring.url}/score", json={"text_1": QUERY, "text_2": DOCUMENTS}, timeout=30).json()[
        "data"
    ]
    assert [each["score"] for each in data] == pytest.approx(expected, abs=TOLERANCE)
    with pytest.raises(openai.BadRequestError, match="serves classify, score"):
        openai.OpenAI(base_url=f"{ring.url}/v1", api_key="none").embeddings.create(model="tiny", input="w5")
    cohere: Any = pytest.importorskip("cohere")
    client = cohere.ClientV2(api_key="none", base_url=ring.url)
    ranked = client.rerank(model="tiny", query=QUERY, documents=DOCUMENTS)
    assert_order([(each.index, each.relevance_score) for each in ranked.results], expected)
    assert len(client.rerank(model="tiny", query=QUERY, documents=DOCUMENTS, top_n=3).results) == 3
    first = cohere.Client(api_key="none", base_url=ring.url)
    told = first.rerank(model="tiny", query=QUERY, documents=DOCUMENTS, return_documents=True, top_n=1)
    assert told.results[0].document.text == DOCUMENTS[told.results[0].index]


def test_a_reranker_by_words(start_ring: StartRing, tmp_path: Path) -> None:
    """LM13: Qwen3-Reranker's form and score."""
    directory = make_head_model("qwen3-words", tmp_path / "words", seed=1)
    (directory / "1_LogitScore").mkdir()
    (directory / "1_LogitScore" / "config.json").write_text('{"true_token_id": 5, "false_token_id": 4}')
    ring = start_ring("--model", str(directory), "--worker-set", "dtype=float32")
    tokenizer, model = load(directory, AutoModelForCausalLM)
    expected = []
    for document in DOCUMENTS:
        prompt = QWEN3_RERANKER.render(QUERY, document, "Find w6")
        with torch.inference_mode():
            logits = model(**tokenizer(prompt, return_tensors="pt")).logits[0, -1]
        expected.append(float(logits[[4, 5]].softmax(0)[1]))
    body = {"query": QUERY, "documents": DOCUMENTS, "instruction": "Find w6"}
    answer = httpx.post(f"{ring.url}/rerank", json=body, timeout=30).json()
    assert_order([(each["index"], each["relevance_score"]) for each in answer["results"]], expected)


def test_labels_have_their_names(start_ring: StartRing, tmp_path: Path) -> None:
    directory = make_head_model("modernbert-mean", tmp_path / "labels", seed=1)
    ring = start_ring("--model", str(directory), "--worker-set", "dtype=float32")
    tokenizer, model = load(directory, AutoModelForSequenceClassification)
    answer = httpx.post(f"{ring.url}/classify", json={"input": DOCUMENTS}, timeout=30).json()
    for text, each in zip(DOCUMENTS, answer["data"], strict=True):
        with torch.inference_mode():
            probs = model(input_ids=tokenizer(text, return_tensors="pt").input_ids).logits[0].softmax(0)
        assert each["probs"] == pytest.approx(probs.tolist(), abs=TOLERANCE)
        assert each["label"] == ["calm", "glad", "sad"][int(probs.argmax())]
