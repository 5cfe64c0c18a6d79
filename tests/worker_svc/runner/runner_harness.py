"""Drives a TorchRunner by hand-built batches: shuffled blocks, chunked prompts, decode rows, drafts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from worker_svc.core.batch import Batch, Sampled
from worker_svc.core.requests.sampling import SamplingParams, SamplingTable
from worker_svc.core.requests.state_versions import StateVersions
from worker_svc.runner.torch_runner import TorchRunner

GREEDY = SamplingParams(temperature=0.0)
GARBAGE = 1e4


@dataclass
class Request:
    """A request in the harness: `tokens` are prompt and output, KV is there for `[0, num_computed)`."""

    slot: int
    tokens: list[int]
    num_prompt: int
    max_tokens: int
    blocks: list[int]
    num_computed: int = 0
    drafts: list[int] = field(default_factory=list)

    @property
    def output(self) -> list[int]:
        return self.tokens[self.num_prompt :]

    @property
    def is_decoding(self) -> bool:
        return bool(self.output) and self.num_computed == len(self.tokens) - 1 and not self.is_finished

    @property
    def is_finished(self) -> bool:
        return len(self.output) >= self.max_tokens


class Driver:
    """Requests on a runner whose cache was filled with garbage."""

    def __init__(self, runner: TorchRunner, num_slots: int = 16, seed: int = 0) -> None:
        self.runner = runner
        self.requests: list[Request] = []
        self.sampling = SamplingTable(num_slots)
        self._tokens = np.zeros((num_slots, runner.info.max_model_len), np.int32)
        self._random = np.random.default_rng(seed)
        self._free_blocks = self._random.permutation(runner.info.num_blocks).tolist()
        self._free_slots = self._random.permutation(num_slots).tolist()
        self._step_id = 0
        self.states = StateVersions(num_slots, runner.info.num_state_versions)
        runner._cache.fill(GARBAGE)
        if runner._states is not None:
            runner._states.fill(GARBAGE)

    def add(self, prompt: list[int], max_tokens: int, params: SamplingParams = GREEDY) -> Request:
        """Takes a slot and all blocks that the request can come to need."""
        slot = self._free_slots.pop()
        num_blocks = -(-(len(prompt) + max_tokens) // self.runner.info.block_size)
        blocks = [self._free_blocks.pop() for _ in range(num_blocks)]
        self.sampling.set(slot, params)
        request = Request(slot, list(prompt), len(prompt), max_tokens, blocks)
        self.requests.append(request)
        return request

    def step(self, chunks: dict[int, int]) -> Sampled:
        """Runs all decoding requests, and for each slot in `chunks` so many more prompt tokens."""
        rows, batch = self.build(chunks)
        self.states.take(batch)
        sampled = self.runner.execute(batch)
        self.states.commit(batch, ())
        self._apply(rows, batch, sampled)
        return sampled

    def build(self, chunks: dict[int, int]) -> tuple[list[tuple[Request, int]], Batch]:
        """The rows of a step, with their numbers of query tokens, and the batch of it."""
        decoding = sorted((r for r in self.requests if r.is_decoding), key=lambda r: r.slot)
        prefilling = [r for r in self.requests if r.slot in chunks]
        rows = [(r, 1 + len(r.drafts)) for r in decoding] + [(r, chunks[r.slot]) for r in prefilling]
        return rows, self._build(rows, len(decoding))

    def preempt(self, request: Request) -> None:
        """Takes the request's blocks, which fill with garbage, and gives it others: all is computed again."""
        cache = self.runner._cache
        for layer in cache.layers:
            layer.keys[request.blocks], layer.values[request.blocks] = GARBAGE, GARBAGE
        self._free_blocks = request.blocks + self._free_blocks
        request.blocks = [self._free_blocks.pop() for _ in request.blocks]
        request.num_computed = 0
        self.states.reset(request.slot)

    def run(self, chunk_size: int = 7, preemptions: int = 0) -> None:
        """Runs until all requests end: known tokens in chunks of random size up to `chunk_size`, two at a time. In
        between, `preemptions` times, a random one of the decoding requests is preempted."""
        while not all(r.is_finished for r in self.requests):
            decoding = [r for r in self.requests if r.is_decoding]
            if preemptions and len(decoding) > 2 and self._random.random() < 0.2:
                self.preempt(decoding[self._random.integers(len(decoding))])
                preemptions -= 1
            waiting = [r for r in self.requests if not r.is_decoding and not r.is_finished][:2]
            sizes = self._random.integers(1, chunk_size + 1, len(waiting)).tolist()
            remaining = [len(r.tokens) - r.num_computed for r in waiting]
            self.step({r.slot: min(n) for r, *n in zip(waiting, sizes, remaining, strict=True)})
        assert not preemptions, "the run was too short for all preemptions"

    def _build(self, rows: list[tuple[Request, int]], num_decode_rows: int) -> Batch:
        self._step_id += 1
        spans = [(r.num_computed, r.num_computed + n) for r, n in rows]
        starts = np.concatenate([[0], np.cumsum([n for _, n in rows])]).astype(np.int32)
        samples = [
            (int(starts[i]) + j, i, spans[i][0] + j + 1 - r.num_prompt)
            for i, (r, n) in enumerate(rows)
            for j in range(n)
            if spans[i][0] + j + 1 >= len(r.tokens)
        ]
        token_ids = [
            t for (r, _), (a, b) in zip(rows, spans, strict=True) for t in (r.tokens + r.drafts)[a:b]
        ]
        columns = np.array(samples, np.int32).reshape(-1, 3).T
        num_tokens = np.zeros(len(self._tokens), np.int32)
        num_prompt = np.zeros(len(self._tokens), np.int32)
        for r in self.requests:
            self._tokens[r.slot, : len(r.tokens)] = r.tokens
            num_tokens[r.slot], num_prompt[r.slot] = len(r.tokens), r.num_prompt
        return Batch(
            step_id=self._step_id,
            slots=np.array([r.slot for r, _ in rows], np.int32),
            num_decode_rows=num_decode_rows,
            query_starts=starts,
            token_ids=np.array(token_ids, np.int32),
            positions=np.array([p for span in spans for p in range(*span)], np.int32),
            seq_lens=np.array([end for _, end in spans], np.int32),
            block_tables=self._block_tables([r for r, _ in rows]),
            sample_index=np.ascontiguousarray(columns[0]),
            sample_rows=np.ascontiguousarray(columns[1]),
            sample_output_positions=np.ascontiguousarray(columns[2]),
            sampling=self.sampling,
            tokens=self._tokens,
            num_prompt_tokens=num_prompt,
            num_tokens=num_tokens,
        )

    def _block_tables(self, requests: list[Request]) -> NDArray[np.int32]:
        width = max(len(r.blocks) for r in requests) + 2
        tables = self._random.integers(0, self.runner.info.num_blocks, (len(requests), width), dtype=np.int32)
        for table, r in zip(tables, requests, strict=True):
            table[: len(r.blocks)] = r.blocks
        return tables

    def _apply(self, rows: list[tuple[Request, int]], batch: Batch, sampled: Sampled) -> None:
        """Takes the sampled tokens; of a row with drafts those up to the first that is not its draft."""
        for i, (r, n) in enumerate(rows):
            tokens = sampled.token_ids[batch.sample_rows == i].tolist()
            if not tokens:
                r.num_computed += n
                continue
            accepted = 0
            while accepted < len(r.drafts) and r.drafts[accepted] == tokens[accepted]:
                accepted += 1
            r.tokens += tokens[: accepted + 1]
            r.drafts = []
            r.num_computed = len(r.tokens) - 1
