"""A simulated model whose sampler looks at all tokens so far, as penalties do: a token never comes twice."""

from __future__ import annotations

import numpy as np

from tests.simulation.vectors import PoolingSimRunner
from worker_svc.core.batch import Batch, Sampled
from worker_svc.runner.sim.model import content, next_token


def first_unseen(token: int, seen: set[int], vocab_size: int) -> int:
    """`token`, or the first one behind it that is not in `seen`."""
    while token in seen:
        token = (token + 1) % vocab_size
    return token


class NoRepeatRunner(PoolingSimRunner):
    """The simulated runner with the sharpest of repetition penalties."""

    def execute(self, batch: Batch) -> Sampled:
        """Samples by the history that the batch gives: known tokens, and the drafts ahead of the sample."""
        sampled = super().execute(batch)
        for sample, (row, query) in enumerate(zip(batch.sample_rows, batch.sample_index, strict=True)):
            slot, start = int(batch.slots[row]), int(batch.query_starts[row])
            num_known = int(batch.num_tokens[slot])
            queries = np.arange(start, int(query) + 1)
            drafts = batch.token_ids[queries[batch.positions[queries] >= num_known]]
            seen = {*batch.tokens[slot, :num_known].tolist(), *drafts.tolist()}
            token = first_unseen(int(sampled.token_ids[sample]), seen, self.info.vocab_size)
            sampled.token_ids[sample] = token
        return sampled


def continuation_without_repeats(prompt: list[int], count: int, vocab_size: int) -> list[int]:
    """The output of an undisturbed run, token by token."""
    tokens = list(prompt)
    for _ in range(count):
        known = np.array(tokens, np.int32)
        total = content(known, np.arange(len(known), dtype=np.int32)).sum(keepdims=True, dtype=np.uint64)
        tokens.append(first_unseen(int(next_token(total, vocab_size)[0]), set(tokens), vocab_size))
    return tokens[len(prompt) :]
