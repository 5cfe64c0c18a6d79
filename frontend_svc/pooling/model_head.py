"""What the files of a model tell of its classification head: the labels' names, and how it wants pairs written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from signalbox.errors import StartupError

LOGIT_SCORE = Path("1_LogitScore") / "config.json"
"""Where sentence-transformers says which words of a language model are its score."""
QWEN3_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"


@dataclass(frozen=True)
class PairTemplate:
    """A pair as one text, with what the model is to judge by."""

    head: str
    tail: str
    instruction: str
    """Where a request has none."""

    def render(self, query: str, document: str, instruction: str | None) -> str:
        """The prompt."""
        told = self.instruction if instruction is None else instruction
        return f"{self.head}<Instruct>: {told}\n<Query>: {query}\n<Document>: {document}{self.tail}"


QWEN3_RERANKER = PairTemplate(
    head="<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n',
    tail="<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    instruction=QWEN3_INSTRUCTION,
)
"""The form that Qwen3-Reranker was trained with."""


@dataclass(frozen=True)
class ModelHead:
    """What is known of a model's head; a model without one has no use for it."""

    labels: tuple[str, ...] = ()
    pair_template: PairTemplate | None = None
    """None: the tokenizer puts the parts of a pair together."""

    def label(self, index: int) -> str:
        """The name of a label, or what transformers calls one without a name."""
        return self.labels[index] if index < len(self.labels) else f"LABEL_{index}"


def read_model_head(directory: Path) -> ModelHead:
    """Raises StartupError for a config.json that is no JSON object; one that is missing says nothing."""
    path = directory / "config.json"
    if not path.is_file():
        return ModelHead()
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StartupError(f"cannot read {path}: {error}") from None
    if not isinstance(config, dict):
        raise StartupError(f"{path} is not a JSON object")
    scores_words = bool(config.get("classifier_from_token")) or (directory / LOGIT_SCORE).is_file()
    is_qwen3 = config.get("model_type") == "qwen3"
    return ModelHead(_labels(config.get("id2label")), QWEN3_RERANKER if scores_words and is_qwen3 else None)


def _labels(names: Any) -> tuple[str, ...]:
    """Names in the order of their numbers; empty where the file has them in another form."""
    if not isinstance(names, dict) or not all(str(number).isdecimal() for number in names):
        return ()
    by_number = {int(number): str(name) for number, name in names.items()}
    return tuple(by_number[number] for number in range(len(by_number))) if _counts_up(by_number) else ()


def _counts_up(by_number: dict[int, str]) -> bool:
    return set(by_number) == set(range(len(by_number)))
