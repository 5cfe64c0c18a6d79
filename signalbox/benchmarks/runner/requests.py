"""Requests of a benchmark without services: greedy, in shuffled blocks, as batches for a runner."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from worker_svc.core.batch import Batch
from worker_svc.core.requests.grammar import GrammarTable
from worker_svc.core.requests.sampling import SamplingParams, SamplingTable

I32 = NDArray[np.int32]


class Requests:
    """S requests, whose slots are 0 to S - 1."""

    def __init__(self, prompts: list[I32], output_tokens: int, block_size: int) -> None:
        count, longest = len(prompts), max(len(prompt) for prompt in prompts) + output_tokens
        width = -(-longest // block_size)
        self.tokens = np.zeros((count, longest + 1), np.int32)
        self.num_prompt = np.array([len(prompt) for prompt in prompts], np.int32)
        self.num_tokens = self.num_prompt.copy()
        self.num_computed = np.zeros(count, np.int32)
        for slot, prompt in enumerate(prompts):
            self.tokens[slot, : len(prompt)] = prompt
        blocks = np.random.default_rng(0).permutation(count * width)
        self.block_tables = blocks.astype(np.int32).reshape(count, width)
        self._sampling = SamplingTable(count)
        for slot in range(count):
            self._sampling.set(slot, SamplingParams(temperature=0.0))
        self._grammars: GrammarTable | None = None
        self._step_id = 0

    @property
    def decoding(self) -> I32:
        """Slots that have output."""
        return np.flatnonzero(self.num_computed >= self.num_prompt).astype(np.int32)

    def set_sampling(self, slot: int, params: SamplingParams) -> None:
        """How a request samples from now on."""
        self._sampling.set(slot, params)

    def follow(self, grammars: GrammarTable) -> None:
        """From now on outputs of slots that have an automaton there are held to it; it does not move."""
        self._grammars, self._sampling.follows_form = grammars, grammars.constrained

    def batch(self, chunks: list[tuple[int, int]], rows: I32 | None = None) -> Batch:
        """The step that decodes `rows`, None: whoever can, and computes (slot, length) of prompts."""
        decode = self.decoding if rows is None else rows
        slots = np.concatenate([decode, np.array([slot for slot, _ in chunks], np.int32)])
        lengths = np.concatenate([np.ones(len(decode), np.int32), np.array([n for _, n in chunks], np.int32)])
        starts = self.num_computed[slots]
        query_starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        rows = np.repeat(np.arange(len(slots), dtype=np.int32), lengths)
        positions = (np.arange(query_starts[-1]) - query_starts[rows] + starts[rows]).astype(np.int32)
        samples = np.flatnonzero(positions == self.num_tokens[slots[rows]] - 1).astype(np.int32)
        self._step_id += 1
        batch = Batch(
            step_id=self._step_id,
            slots=slots,
            num_decode_rows=len(decode),
            query_starts=query_starts,
            token_ids=self.tokens[slots[rows], positions],
            positions=positions,
            seq_lens=starts + lengths,
            block_tables=self.block_tables[slots],
            sample_index=samples,
            sample_rows=rows[samples],
            sample_output_positions=positions[samples] + 1 - self.num_prompt[slots[rows[samples]]],
            sampling=self._sampling,
            tokens=self.tokens,
            num_prompt_tokens=self.num_prompt,
            num_tokens=self.num_tokens,
        )
        if self._grammars is not None:
            batch.masks = self._grammars.masks(slots, batch.sample_rows, None)
            if batch.masks is not None:
                batch.mask_index = batch.masks.index
        return batch

    def advance(self, batch: Batch) -> None:
        """Counts what `batch` computes and samples; the sampled tokens are 0 until `fill_in`."""
        self.num_computed[batch.slots] = batch.seq_lens
        self.num_tokens[batch.slots[batch.sample_rows]] += 1
        if self._grammars is not None:
            for slot in batch.slots.tolist():
                self._grammars.drop_masks(slot)

    def fill_in(self, batch: Batch, token_ids: I32) -> None:
        """The tokens that `batch` has sampled."""
        rows = batch.sample_rows
        self.tokens[batch.slots[rows], batch.seq_lens[rows]] = token_ids

    def output(self, slot: int) -> list[int]:
        """Output tokens so far."""
        return self.tokens[slot, self.num_prompt[slot] : self.num_tokens[slot]].tolist()  # type: ignore[no-any-return]
