"""The forward of one stage: from tokens, or from what the stage before has sent, to hidden states."""

from __future__ import annotations

import torch

from worker_svc.runner.cpu.decoder import FusedDecoder
from worker_svc.runner.cpu.direct_forward import MOST_POSITIONS
from worker_svc.runner.model.head import base_of
from worker_svc.runner.model.loading import LoadedModel
from worker_svc.runner.split.elsewhere import Entry
from worker_svc.runner.split.ends import embedding_name, norm_name


class StageForward:
    """Runs the layers of a stage, by one native call where they are one. To be called while a batch is `running`."""

    def __init__(self, model: LoadedModel, num_positions: int, *, reads_tokens: bool = False) -> None:
        """reads_tokens: layers are given something by token, too, and the embeddings are here."""
        self._reads_tokens = reads_tokens
        base = self._base = base_of(model.module)
        entry = base.layers[0]
        self._entry = entry if isinstance(entry, Entry) else None
        self._embed, self._norm = getattr(base, embedding_name(base)), getattr(base, norm_name(base))
        last = base.layers[-1]
        self._fused: FusedDecoder | None = None
        if isinstance(last, FusedDecoder) and num_positions <= MOST_POSITIONS:
            self._fused = last
            positions = torch.arange(num_positions, device=model.device)[None]
            angles = base.rotary_emb(torch.empty(0, dtype=model.dtype, device=model.device), positions)
            self._cosines, self._sines = (part[0].to(model.dtype) for part in angles)

    def __call__(
        self, token_ids: torch.Tensor, positions: torch.Tensor, received: torch.Tensor | None
    ) -> torch.Tensor:
        """`[T, H]` behind the stage's layers, and in the last stage behind the norm; `received` `[T, H]`, None: the
        first stage begins with the tokens `[T]`."""
        if self._fused is not None:
            hidden = self._embed(token_ids)[None] if received is None else received[None]
            angles = (self._cosines[positions][None], self._sines[positions][None])
            states: torch.Tensor = self._norm(self._fused(hidden, angles))[0]
            return states
        tokens, places = {"input_ids": token_ids[None]}, positions[None]
        if received is None:
            output = self._base(**tokens, position_ids=places, use_cache=False)
        else:
            assert self._entry is not None, "the first stage receives nothing"
            inputs = tokens if self._reads_tokens else {"inputs_embeds": received[None]}
            with self._entry.receiving(received):
                output = self._base(**inputs, position_ids=places, use_cache=False)
        last: torch.Tensor = output.last_hidden_state[0]
        return last
