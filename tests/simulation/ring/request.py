"""What a client of a simulated ring requests, and what an undisturbed run would give it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from signalbox.protocol.model_identity import ModelIdentity
from tests.simulation.penalties import first_unseen
from tests.simulation.ring.automaton import Rule, first_allowed
from worker_svc.runner.sim.model import content, mix, next_token, seed_of


@dataclass(frozen=True)
class RingRequest:
    """One request."""

    request_id: str
    prompt: tuple[int, ...]
    max_tokens: int
    seed: int = 0
    is_drawn: bool = False
    """Its tokens are drawn by seed and position; else they are the likeliest."""
    stop_token_ids: tuple[int, ...] = ()
    stop_after: int | None = None
    """The frontend finds a stop string at this many output tokens."""
    rule: Rule | None = None
    """The form that its output has to follow."""
    never_repeats: bool = False
    """It asks for the sharpest of repetition penalties."""
    logprobs: bool = False
    """It asks for those of its output."""
    prompt_logprobs: bool = False
    """It asks for those of its prompt."""
    pooling: str = ""
    """It asks for a vector, made in this way."""
    priority: int = 0
    tenant: str = ""
    think_s: float = 0.0
    """How long its client takes to read what it was given; 0: no time."""
    leaves_after_s: float | None = None
    """Its client goes away."""
    is_poison: bool = False
    """Whoever computes its prompt dies."""
    is_hanging: bool = False
    """Steps that compute its prompt never end."""
    fails: bool = False
    """The model fails on it."""
    is_nan: bool = False
    """Hidden states behind its first prompt token are no numbers."""
    stop_at_length: int = field(default=0, compare=False)

    def expected(self, vocab_size: int, limit: int) -> list[int]:
        """The output of an undisturbed run; `limit`: tokens that a sequence may have."""
        if self.pooling:
            return []
        tokens, output = list(self.prompt), list[int]()
        known = np.array(tokens, np.int32)
        total = content(known, np.arange(len(known), dtype=np.int32)).sum(keepdims=True, dtype=np.uint64)
        most = self.max_tokens if self.rule is None else min(self.max_tokens, self.rule.most_masks or limit)
        while len(output) < most and len(tokens) < limit:
            token = int(next_token(self.stir(total, len(output)), vocab_size)[0])
            if self.never_repeats:
                token = first_unseen(token, set(tokens), vocab_size)
            if self.rule is not None:
                token = first_allowed(self.rule, len(output), token, vocab_size)
            total += content(np.array([token], np.int32), np.array([len(tokens)], np.int32))
            tokens.append(token)
            output.append(token)
            if self._ends_with(output):
                break
        return output

    def weights(self, output: Sequence[int]) -> tuple[list[float], list[float]]:
        """Log-probabilities of the prompt but for its first token, and of `output`, as far as they were asked for."""
        known = [*self.prompt, *output]
        all_of_them = [logprob_of(token, position) for position, token in enumerate(known)]
        first = len(self.prompt)
        prompt = all_of_them[1:first] if self.prompt_logprobs else []
        return prompt, all_of_them[first:] if self.logprobs else []

    def least_moves(
        self, output: Sequence[int], identities: Sequence[ModelIdentity], vocab_size: int
    ) -> int | None:
        """How often `output` has gone on under another identity, at least; None: no identity makes one of its
        tokens."""
        known = np.array((*self.prompt, *output), np.int32)
        contents = content(known, np.arange(len(known), dtype=np.int32))
        totals = np.cumsum(contents, dtype=np.uint64)[len(self.prompt) - 1 :]
        num_moves, at_work = 0, set(identities)
        for position, token in enumerate(output):
            made = set()
            for identity in identities:
                total = totals[position : position + 1] + seed_of(identity) * np.uint64(
                    len(self.prompt) + position
                )
                total = total + draw(self.seed, position) if self.is_drawn else total + seed_of(identity)
                if int(next_token(total, vocab_size)[0]) == token:
                    made.add(identity)
            if not made:
                return None
            if not made & at_work:
                num_moves += 1
            at_work = made & at_work or made
        return num_moves

    def ends(self, output: Sequence[int], limit: int) -> bool:
        """Whether an output is whole; `limit`: tokens that a sequence may have."""
        is_full = len(output) == self.max_tokens or len(self.prompt) + len(output) == limit
        return is_full or self._ends_with(list(output))

    def _ends_with(self, output: list[int]) -> bool:
        if output[-1] in self.stop_token_ids or len(output) == self.stop_after:
            return True
        return self.rule is not None and len(output) == self.rule.length

    def stir(self, total: np.ndarray, position: int) -> np.ndarray:  # type: ignore[type-arg]
        """What the next token at an output position is made of."""
        return total + draw(self.seed, position) if self.is_drawn else total


def draw(seed: int, position: int) -> np.uint64:
    """The random number of an output position."""
    return np.uint64(mix(np.array([(seed << 20) + position + 1], np.uint64))[0])


def logprob_of(token: int, position: int) -> float:
    """What the simulated model says of a token at a position of its sequence; a fraction that no float rounds."""
    return -((token * 31 + position * 7) % 4096) / 64
