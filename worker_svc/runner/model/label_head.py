"""The classification head of a model, as its directory tells: without torch, before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from signalbox.protocol.enums import ModelTask
from worker_svc.core.requests.pooling import Activation
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model import checkpoint

CROSS_ENCODER_CONFIG = "config_sentence_transformers.json"
LOGIT_SCORE = Path("1_LogitScore") / "config.json"
"""Where sentence-transformers says which words of a language model are its score."""
ACTIVATIONS = {
    "Identity": Activation.IDENTITY,
    "Sigmoid": Activation.SIGMOID,
    "Softmax": Activation.SOFTMAX,
}
"""By the class of torch that sentence-transformers names."""
OF_PROBLEM = {
    "regression": Activation.IDENTITY,
    "multi_label_classification": Activation.SIGMOID,
}
"""By `problem_type` of config.json; softmax for all others, as in transformers' losses."""


class HeadKind(StrEnum):
    """Where a model's labels come from."""

    SEQUENCE = "ForSequenceClassification"
    TOKENS = "ForTokenClassification"
    WORDS = "words"
    """Logits of a language model for some tokens, such as yes and no."""


@dataclass(frozen=True)
class LabelHead:
    """What a model's labels are made of, and what their numbers go through."""

    kind: HeadKind
    num_labels: int
    activation: Activation
    """Activation for CLASSIFY and TOKEN_CLASSIFY."""
    score_activation: Activation
    """Activation for SCORE."""
    word_ids: tuple[int, ...] = ()
    """Tokens of WORDS."""
    is_difference: bool = False
    """The one label of two WORDS: how much likelier the second is than the first."""

    def tasks(self, *, for_tokens: bool) -> tuple[ModelTask, ...]:
        """What can be asked; `for_tokens`: the head takes any token's hidden state."""
        if self.kind == HeadKind.TOKENS:
            return (ModelTask.TOKEN_CLASSIFY,)
        score = (ModelTask.SCORE,) if self.num_labels == 1 else ()
        return (ModelTask.CLASSIFY, *score, *((ModelTask.TOKEN_CLASSIFY,) if for_tokens else ()))


def read_label_head(model_dir: Path, config: dict[str, Any]) -> LabelHead | None:
    """None: the model has no classification head. ModelLoadError for one that cannot be served as it is meant."""
    architecture = str((config.get("architectures") or [""])[0])
    for kind in (HeadKind.SEQUENCE, HeadKind.TOKENS):
        if architecture.endswith(kind):
            return _made(model_dir, config, LabelHead(kind, count_labels(config), *_OPEN))
    path = model_dir / LOGIT_SCORE
    if path.is_file():
        score = checkpoint.read_json(path)
        ids = [score.get("false_token_id"), score.get("true_token_id")]
        if not isinstance(ids[1], int):
            raise ModelLoadError(f"{path} names no true_token_id.")
        return _of_words(model_dir, config, [token_id for token_id in ids if isinstance(token_id, int)])
    words = config.get("classifier_from_token")
    if words:
        return _of_words(model_dir, config, _token_ids(model_dir, words))
    return None


_OPEN = (Activation.IDENTITY, Activation.IDENTITY)


def count_labels(config: dict[str, Any]) -> int:
    """Labels by `id2label` of config.json, or its `num_labels`; 2 where it has neither, as in transformers."""
    labels = config.get("id2label")
    return len(labels) if isinstance(labels, dict) and labels else int(config.get("num_labels") or 2)


def _of_words(model_dir: Path, config: dict[str, Any], ids: list[int]) -> LabelHead:
    takes_all = config.get("method") == "no_post_processing"
    is_difference = len(ids) == 2 and not takes_all
    num_labels = 1 if is_difference else len(ids)
    head = LabelHead(HeadKind.WORDS, num_labels, *_OPEN, word_ids=tuple(ids), is_difference=is_difference)
    return _made(model_dir, config, head)


def _token_ids(model_dir: Path, words: Any) -> list[int]:
    from tokenizers import Tokenizer  # noqa: PLC0415 (few models have such a head)

    path = model_dir / checkpoint.TOKENIZER
    if not path.is_file():
        raise ModelLoadError(f"classifier_from_token needs {path}, which does not exist.")
    tokenizer: Any = Tokenizer.from_file(str(path))
    ids = [tokenizer.token_to_id(word) for word in words]
    if None in ids:
        raise ModelLoadError(f"classifier_from_token: {path} has no token {words[ids.index(None)]!r}.")
    return ids


def _made(model_dir: Path, config: dict[str, Any], head: LabelHead) -> LabelHead:
    """`head` with its activations."""
    own = Activation.SIGMOID if head.num_labels == 1 else Activation.SOFTMAX
    activation = OF_PROBLEM.get(str(config.get("problem_type")), own)
    named = _named_activation(model_dir, config)
    return LabelHead(
        head.kind,
        head.num_labels,
        activation=activation,
        score_activation=own if named is None else named,
        word_ids=head.word_ids,
        is_difference=head.is_difference,
    )


def _named_activation(model_dir: Path, config: dict[str, Any]) -> Activation | None:
    """What sentence-transformers puts a cross-encoder's score through; None: it does not say."""
    own = config.get("sentence_transformers")
    name = own.get("activation_fn") if isinstance(own, dict) else None
    name = name or config.get("sbert_ce_default_activation_function")
    path = model_dir / CROSS_ENCODER_CONFIG
    if not name and path.is_file():
        name = checkpoint.read_json(path).get("activation_fn")
    if not name:
        return None
    known = ACTIVATIONS.get(str(name).rpartition(".")[2])
    if known is None or not str(name).startswith("torch.nn."):
        raise ModelLoadError(f"{model_dir}: the activation {name!r} of its score is not known.")
    return known


def decoder_tasks(head: LabelHead | None, *, pools: bool) -> tuple[ModelTask, ...]:
    """What can be asked of a decoder with this head; `pools`: its hidden states can be had as it means them."""
    if head is not None:
        return head.tasks(for_tokens=True)
    return (ModelTask.GENERATE, *((ModelTask.EMBED, ModelTask.TOKEN_EMBED) if pools else ()))


def label_settings(head: LabelHead | None) -> dict[str, Any]:
    """The fields of `RunnerInfo` that tell of a classification head."""
    if head is None:
        return {}
    return {
        "num_labels": head.num_labels,
        "label_activation": head.activation,
        "score_activation": head.score_activation,
    }
