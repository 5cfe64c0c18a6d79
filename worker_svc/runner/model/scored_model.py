"""A decoder under a classification head, which is called as a causal language model is: its logits are the numbers of
the labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.label_head import HeadKind, LabelHead


class ScoredModel(torch.nn.Module):
    """A base model and a linear head over its last hidden states."""

    base_model_prefix = "model"

    def __init__(self, base: Any, head: torch.nn.Module) -> None:
        super().__init__()
        self.model, self.lm_head, self.config = base, head, base.config
        self.shows_states = False
        """The hidden states stand for logits: one label's number alone would prove little."""

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        use_cache: bool = False,
        logits_to_keep: torch.Tensor | int = 0,
        **inputs: Any,
    ) -> Any:
        """An object with `logits` `[1, N, L]` of the tokens to keep, by their numbers, or the last so many (0: all).
        `inputs` are what the base model takes in place of `input_ids`."""
        output = self.model(input_ids=input_ids, position_ids=position_ids, use_cache=use_cache, **inputs)
        states = output.last_hidden_state
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        states = states[:, kept]
        return SimpleNamespace(logits=states if self.shows_states else self.lm_head(states))

    def set_attn_implementation(self, name: str) -> None:
        """Chooses the attention function, as transformers' models do."""
        self.model.set_attn_implementation(name)


def with_label_head(module: Any, head: LabelHead) -> ScoredModel:
    """The decoder of `module`, which was loaded with its head. ModelLoadError for a head that is not known."""
    base = getattr(module, module.base_model_prefix, None)
    family = module.config.model_type
    if head.kind == HeadKind.WORDS:
        return ScoredModel(base, _head_of_words(module, head))
    linear = getattr(module, "score", None)
    if not isinstance(base, torch.nn.Module) or not isinstance(linear, torch.nn.Linear):
        raise ModelLoadError(f"model_type {family!r} has a classification head that is not known here.")
    return ScoredModel(base, linear)


@torch.no_grad()
def _head_of_words(module: Any, head: LabelHead) -> torch.nn.Linear:
    weight = module.get_output_embeddings().weight
    config = module.config
    if getattr(config, "final_logit_softcapping", None) or getattr(config, "logit_scale", 1) != 1:
        raise ModelLoadError(
            f"model_type {config.model_type!r} caps or scales its logits: words are no labels."
        )
    if max(head.word_ids) >= len(weight):
        raise ModelLoadError(f"the model has no token {max(head.word_ids)}, of which its score is made.")
    rows = weight[list(head.word_ids)].float()
    if head.is_difference:
        rows = rows[1:] - rows[:1]
    linear = torch.nn.Linear(rows.shape[1], len(rows), bias=False, dtype=weight.dtype, device=weight.device)
    linear.weight.copy_(rows)
    return linear


@contextmanager
def showing_states(module: Any) -> Iterator[None]:
    """Lets the hidden states of a model with a classification head stand for its logits; others stay as they are."""
    if not isinstance(module, ScoredModel):
        yield
        return
    module.shows_states = True
    try:
        yield
    finally:
        module.shows_states = False
