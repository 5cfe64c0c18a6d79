"""Outputs against the logits that transformers' own forward gives for the same tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from worker_svc.core.requests.automaton import Automaton
from worker_svc.runner.model.probe import TOLERANCES

TOLERANCE = TOLERANCES[torch.float32]
"""Standard deviations by which a token may be below the best one: either of two near ties is right."""


@dataclass
class Agreement:
    """How many tokens of some outputs are transformers' own."""

    tokens: int = 0
    equal: int = 0
    near_ties: int = 0
    largest_gap: float = 0.0
    """Largest gap between the best logit and that of our token, in standard deviations."""

    @property
    def wrong(self) -> int:
        """Tokens that are neither the best nor near ties."""
        return self.tokens - self.equal - self.near_ties

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(
            self.tokens + other.tokens,
            self.equal + other.equal,
            self.near_ties + other.near_ties,
            max(self.largest_gap, other.largest_gap),
        )


class Reference:
    """A model as transformers runs it, in float32, with plain attention."""

    def __init__(self, path: Path, device: torch.device) -> None:
        # Convolutions of recurrent layers would be of 10 bits on a GPU.
        torch.backends.cudnn.allow_tf32 = False
        loader: Any = AutoModelForCausalLM
        model = loader.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
        self._model, self._device = model.to(device).eval(), device
        self._known: dict[tuple[int, ...], Agreement] = {}

    def compare(self, prompt: Sequence[int], output: Sequence[int]) -> Agreement:
        """Greedy tokens, each given those before it."""
        key = (*prompt, -1, *output)
        if key not in self._known:
            self._known[key] = _agreement(self._logits(prompt, output), output)
        return self._known[key]

    def compare_masked(self, prompt: Sequence[int], output: Sequence[int], automaton: Automaton) -> Agreement:
        """Greedy tokens of those that a form allows. automaton: at its start."""
        logits = self._logits(prompt, output)
        logits = logits.clone()  # one that is no tensor of inference mode
        for row, token in zip(logits, output, strict=True):
            row[torch.from_numpy(~allowed(automaton, logits.shape[1]))] = -torch.inf
            automaton.advance(token)
        return _agreement(logits, output)

    @torch.inference_mode()
    def _logits(self, prompt: Sequence[int], output: Sequence[int]) -> torch.Tensor:
        """`[outputs, V]` on the CPU: what each output token was chosen from."""
        tokens = torch.tensor([[*prompt, *output]], device=self._device)
        whole: torch.Tensor = self._model(tokens, use_cache=False).logits
        return whole[0, len(prompt) - 1 : -1].float().cpu()


def _agreement(logits: torch.Tensor, output: Sequence[int]) -> Agreement:
    ours = logits.gather(1, torch.tensor(output)[:, None])[:, 0]
    spread = torch.stack([row[row.isfinite()].std(correction=0) for row in logits])
    gaps = (logits.amax(-1) - ours) / spread.clamp_min(1e-30)
    equal = int((gaps == 0).sum())
    near = int(((gaps > 0) & (gaps <= TOLERANCE)).sum())
    return Agreement(len(output), equal, near, round(float(gaps.max()), 5))


def allowed(automaton: Automaton, vocab_size: int) -> NDArray[np.bool_]:
    """[V] whether a form allows each token next."""
    words = np.zeros((1, -(-vocab_size // 32)), np.uint32)
    automaton.fill(np.empty(0, np.int32), words)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    return bits[:vocab_size].astype(np.bool_)
