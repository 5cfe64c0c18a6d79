"""What stands in a stage's model for the layers and ends that other stages have: transformers' own code runs as ever,
and passes over them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from worker_svc.runner.model.head import base_of
from worker_svc.runner.split.ends import HEAD, embedding_name, norm_name
from worker_svc.runner.split.stage import Stage

PAIRING = frozenset(("BambaDecoderLayer", "FalconH1DecoderLayer"))
"""Layers, by transformers' classes, that give a tuple, whose first element are the hidden states."""


class Elsewhere(nn.Module):
    """A layer that another stage has."""

    def __init__(self, layer: nn.Module) -> None:
        """What a model asks of `layer` besides calling it is told here, too."""
        super().__init__()
        self._gives_pairs = type(layer).__name__ in PAIRING or bool(getattr(layer, "_gives_pairs", False))
        scales = getattr(getattr(layer, "mamba", None), "mup_vector", None)
        if scales is not None:  # Falcon H1 sets it in all layers when weights are there
            self.mamba = nn.Module()
            self.mamba.register_buffer("mup_vector", scales, persistent=False)
        for name, value in vars(layer).items():
            if not name.startswith("_") and isinstance(value, int | float | str | None):
                setattr(self, name, value)

    def forward(self, hidden_states: torch.Tensor, *_: Any, **__: Any) -> Any:
        """`[1, T, H]` as they are, in the form in which the layer would give its own."""
        return (hidden_states, None) if self._gives_pairs else hidden_states


class NoEmbedding(nn.Module):
    """The embedding of a stage but the first one. Of tokens that it has learned it gives the states that the stage
    before makes of them, for a stage that is looked at alone; of others numbers that differ by token."""

    def __init__(self, hidden_size: int, padding_idx: int | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.padding_idx, self._hidden_size, self._dtype = padding_idx, hidden_size, dtype
        self._known: dict[int, torch.Tensor] = {}
        self.last: torch.Tensor | None = None
        """What it gave last, before the model scaled it."""

    @property
    def weight(self) -> torch.Tensor:
        """An empty tensor: models ask for its device and type alone."""
        return torch.empty(0, dtype=self._dtype)

    def learn(self, token_ids: torch.Tensor, states: torch.Tensor) -> None:
        """The states `[T, H]` of tokens `[T]`, which differ from each other."""
        self._known = dict(zip(token_ids.tolist(), states, strict=True))

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        """`[1, T]` to `[1, T, H]`."""
        self.last = torch.stack([self._states_of(token) for token in token_ids[0].tolist()])[None]
        return self.last

    def _states_of(self, token: int) -> torch.Tensor:
        if token in self._known:
            return self._known[token]
        steps = torch.arange(1, self._hidden_size + 1, dtype=torch.float32)
        return torch.sin((token % 997 + 1) * steps * 0.37).to(self._dtype)


class Entry(Elsewhere):
    """Stands for the first layer of a stage but the first one: gives what has come from the stage before."""

    def __init__(self, layer: nn.Module, embedding: NoEmbedding) -> None:
        super().__init__(layer)
        self._embedding = [embedding]  # not a module of ours
        self._received: torch.Tensor | None = None

    @property
    def embedding(self) -> NoEmbedding:
        """The embedding of its stage, which is none."""
        return self._embedding[0]

    @contextmanager
    def receiving(self, states: torch.Tensor) -> Iterator[None]:
        """Meanwhile these `[T, H]` are what has come."""
        self._received = states[None]
        try:
            yield
        finally:
            self._received = None

    def note(self, _embedding: nn.Module, token_ids: tuple[torch.Tensor], _output: torch.Tensor) -> None:
        """A hook of a stage's own embedding: of a stage that is looked at alone, what has come follows from tokens."""
        if self._received is None:
            self.embedding(*token_ids)

    def forward(self, hidden_states: torch.Tensor, *_: Any, **__: Any) -> Any:
        """What has come `[1, T, H]`; what the embedding gave where nothing has, for a stage that is looked at alone."""
        if self._received is not None:
            return super().forward(self._received)
        last = self._embedding[0].last
        return super().forward(hidden_states if last is None else last)


def staged(model_class: Any, stage: Stage) -> Any:
    """The class of a model that has the modules of a stage alone, from the moment that it is made: nothing else takes
    memory, or is looked for in a checkpoint."""

    def build(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        if not (stage.is_first and stage.has_head):
            config.tie_word_embeddings = False  # one of them is not here
        model_class.__init__(self, config, *args, **kwargs)
        leave_out_others(self, stage)

    return type(
        model_class.__name__, (model_class,), {"__init__": build, "__module__": model_class.__module__}
    )


def leave_out_others(module: Any, stage: Stage) -> None:
    """Takes away what other stages have."""
    base = base_of(module)
    for number, layer in enumerate(base.layers):
        if number not in stage.layers:
            base.layers[number] = Elsewhere(layer)
    if not stage.is_first:
        name = embedding_name(base)
        embedding = getattr(base, name)
        nothing = NoEmbedding(
            module.config.hidden_size, getattr(embedding, "padding_idx", None), embedding.weight.dtype
        )
        entry = base.layers[0] = Entry(base.layers[0], nothing)
        if stage.reads_tokens:
            embedding.register_forward_hook(entry.note)
        else:
            setattr(base, name, nothing)
    if not stage.is_last:
        setattr(base, norm_name(base), nn.Identity())
    if not stage.has_head:
        setattr(module, HEAD, nn.Identity())
