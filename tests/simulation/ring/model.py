"""The simulated model of a ring: tokens are hashes of what is read back through the block tables, drawn, masked and
adjusted as asked, and it fails on request."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.simulation.ahead import AheadSimRunner, BlockOwners
from tests.simulation.lanes import Pipelined
from tests.simulation.penalties import first_unseen
from tests.simulation.ring.request import draw, logprob_of
from tests.simulation.vectors import PoolingSimRunner
from worker_svc.core.batch import Batch, RunnerInfo, Sampled, TokenLogprobs
from worker_svc.core.requests.sampling import NO_LOGPROBS
from worker_svc.runner.sim.model import U64, next_token

I32 = NDArray[np.int32]
POISON = 990
"""A prompt with this token kills whoever computes it; tokens of other prompts are smaller."""
FAILING = 991
"""The model fails on a prompt with this token."""
HANGING = 993
"""A step with a row of a prompt with this token never ends."""
NAN = 992
"""Rows that compute this token have hidden states that are no numbers, and leave none behind."""
GARBAGE = np.uint64(0xBAD)
"""What such rows leave in the cache."""


class ProcessCrashedError(BaseException):
    """The process dies in the model, as of a segmentation fault: nobody catches it."""


class ModelError(Exception):
    """The model was asked to fail."""


@dataclass
class Trouble:
    """What goes wrong in the model of one worker, beside the tokens that no model stands."""

    slowness: float = 1.0
    hangs_until: float = 0.0
    compiles_until: float = 0.0
    """The next step has a kernel compiled."""
    lost_device: bool = False

    def check(self, batch: Batch) -> None:
        """Before a batch runs."""
        if self.lost_device:
            raise ModelError("the device is lost")
        self.check_alive(batch)
        first = batch.tokens[batch.slots, 0]
        if (first == FAILING).any():
            raise ModelError(f"the model fails on slot {batch.slots[first == FAILING][0]}")

    def hangs(self, batch: Batch) -> bool:
        """Whether the batch never ends."""
        return bool((batch.tokens[batch.slots, 0] == HANGING).any())

    def check_alive(self, batch: Batch) -> None:
        """Ends the process of whoever computes what no process stands."""
        first = batch.tokens[batch.slots, 0]
        if not self.lost_device and (first == POISON).any():
            raise ProcessCrashedError(f"slot {batch.slots[first == POISON][0]}")


class _Sampler(PoolingSimRunner):
    """Chooses as asked."""

    def __init__(self, info: RunnerInfo, trouble: Trouble) -> None:
        super().__init__(info)
        self.trouble = trouble
        self.owners: BlockOwners | None = BlockOwners(info)
        self.num_rows = 0

    def execute(self, batch: Batch) -> Sampled:
        """As `ModelRunner.execute`."""
        self.trouble.check(batch)
        self.num_rows += len(batch.slots)
        sampled = self.choose(batch, super().execute(batch))
        self._weigh(batch, sampled)
        is_bad = (batch.token_ids == NAN) & (batch.positions < batch.num_prompt_tokens[self._slots(batch)])
        if is_bad.any():
            self._spoil(batch, sampled, is_bad)
        return sampled

    @staticmethod
    def _weigh(batch: Batch, sampled: Sampled) -> None:
        """Log-probabilities of whoever asks for them."""
        asks = batch.sampling.num_logprobs[batch.slots[batch.sample_rows]] != NO_LOGPROBS
        for sample in np.flatnonzero(asks).tolist():
            position = int(batch.positions[batch.sample_index[sample]]) + 1
            sampled.logprobs[sample] = _weight(int(sampled.token_ids[sample]), position)
        for row, start, end in batch.scored:
            known, positions = batch.tokens[batch.slots[row]], batch.positions[start:end].tolist()
            sampled.prompt_logprobs[row] = [_weight(int(known[at + 1]), at + 1) for at in positions]

    @staticmethod
    def _rows(batch: Batch) -> I32:
        """[T] the row of each token."""
        return np.repeat(np.arange(len(batch.slots), dtype=np.int32), np.diff(batch.query_starts))

    def _slots(self, batch: Batch) -> I32:
        """[T] the slot of each token."""
        return batch.slots[self._rows(batch)]

    def _spoil(self, batch: Batch, sampled: Sampled, is_bad: NDArray[np.bool_]) -> None:
        """What the rows of bad tokens write is garbage, to their ends and from their beginnings on."""
        rows, size = self._rows(batch), self.info.block_size
        sampled.bad_rows = np.unique(rows[is_bad])
        written = np.isin(rows, sampled.bad_rows)
        blocks = batch.block_tables[rows[written], batch.positions[written] // size]
        self._cache[blocks, batch.positions[written] % size] = GARBAGE
        for cache, tables in zip(self._group_caches, batch.group_tables, strict=True):
            blocks = tables[rows[written], batch.positions[written] // size]
            cache[blocks, batch.positions[written] % size] = GARBAGE

    def check(self) -> None:
        """As `ModelRunner.check`."""
        if self.trouble.lost_device:
            raise ModelError("the device is lost")

    def choose(self, batch: Batch, sampled: Sampled) -> Sampled:
        """Draws, adjusts and masks the samples that ask for it."""
        bits = None if batch.masks is None else batch.masks.bits()
        table, vocab_size = batch.sampling, self.info.vocab_size
        for sample, (row, query) in enumerate(zip(batch.sample_rows, batch.sample_index, strict=True)):
            slot = int(batch.slots[row])
            is_masked = bits is not None and batch.mask_index[sample] >= 0
            if table.temperature[slot] == 0 and not table.adjusts[slot] and not is_masked:
                continue
            token = int(sampled.token_ids[sample])
            if table.temperature[slot] != 0:
                position = int(batch.sample_output_positions[sample])
                total = self._total(batch, int(row), int(query)) + draw(int(table.seed[slot]), position)
                token = int(next_token(total, vocab_size)[0])
            if table.adjusts[slot]:
                token = first_unseen(token, self._seen(batch, int(row), int(query)), vocab_size)
            if is_masked:
                assert bits is not None
                words = bits[batch.mask_index[sample]]
                while not words[token // 32] >> (token % 32) & 1:
                    token = (token + 1) % vocab_size
            sampled.token_ids[sample] = token
        return sampled

    def _total(self, batch: Batch, row: int, query: int) -> U64:
        length, size = int(batch.positions[query]) + 1, self.info.block_size
        read = self._cache[batch.block_tables[row, : -(-length // size)]].reshape(-1)[:length]
        return read.sum(keepdims=True, dtype=np.uint64)

    @staticmethod
    def _seen(batch: Batch, row: int, query: int) -> set[int]:
        """Known tokens, and the drafts ahead of the sample."""
        slot, start = int(batch.slots[row]), int(batch.query_starts[row])
        num_known = int(batch.num_tokens[slot])
        queries = np.arange(start, query + 1)
        drafts = batch.token_ids[queries[batch.positions[queries] >= num_known]]
        return {*batch.tokens[slot, :num_known].tolist(), *drafts.tolist()}


def _weight(token: int, position: int) -> TokenLogprobs:
    return TokenLogprobs(logprob_of(token, position), 1, [], [])


class Model(_Sampler):
    """Runs a batch when it is asked for its tokens."""


class PipelineModel(Pipelined, _Sampler):
    """Has as many batches on their way as it has lanes."""


class AheadModel(AheadSimRunner):
    """Has its batches launched, and runs them as late as it can. It knows no penalties (they are not plain)."""

    def __init__(self, info: RunnerInfo, trouble: Trouble) -> None:
        super().__init__(info)
        self.trouble = trouble
        self.owners = BlockOwners(info)
        self._sampler = _Sampler(info, trouble)
        self._sampler._cache, self._sampler._host = self._cache, self._host
        self._sampler._group_caches = self._group_caches

    @property
    def num_rows(self) -> int:
        """Rows run so far."""
        return self._sampler.num_rows

    def check(self) -> None:
        """As `ModelRunner.check`."""
        self._sampler.check()

    def _execute(self, batch: Batch) -> Sampled:
        self.num_decode_rows += batch.num_decode_rows
        sampled = self._sampler.execute(batch)
        for sample, row in enumerate(batch.sample_rows.tolist()):
            self._newest[int(batch.slots[row])] = int(batch.seq_lens[row]), int(sampled.token_ids[sample])
        return sampled
