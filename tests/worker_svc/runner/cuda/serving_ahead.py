"""Serves requests on the GPU's runner, a step ahead, through a scheduler's and a worker's core."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

from benchmarks.gpu.right.drafts import KnownDrafter
from signalbox.v1 import generation_pb2
from tests.simulation.ahead import Mask
from tests.worker_svc.drafting.local_ring import LocalRing
from tests.worker_svc.runner.reference import assert_same_but_for_ties, generate
from tests.worker_svc.runner.runner_harness import GARBAGE
from tests.worker_svc.threaded_ring import ThreadedRing
from worker_svc.core.batch import Batch
from worker_svc.runner.cuda.runner import CudaRunner, Launched

NUM_TOKENS = 40
STOPS = (None, 7, None, 23)
"""Number of the token that ends an output, by request in turns; it is known when the next step has been launched."""


class RecordingRunner(CudaRunner):
    """Counts the rows that ran on a token that the host did not know, and the states that were kept."""

    num_ahead = num_keeps = 0

    @classmethod
    def of(cls, path: Path, **settings: Any) -> RecordingRunner:
        """A runner in float32 whose memory is full of garbage."""
        options = {"num_blocks": 100, "block_size": 4, "threads": 1, "num_slots": 16} | settings
        runner = cls(path, served_model_name="tiny", dtype="float32", **options)
        runner._cache.fill(GARBAGE)
        if runner._states is not None:
            runner._states.fill(GARBAGE)
        return runner

    def launch(self, batch: Batch, in_flight: Mask | None = None) -> Launched:
        """As `CudaRunner.launch`."""
        self.num_ahead += 0 if in_flight is None else int(in_flight.sum())
        self.num_keeps += len(batch.state_keeps)
        return super().launch(batch, in_flight)


def serve_ahead(
    runner: RecordingRunner,
    path: Path,
    prompts: list[list[int]],
    depth: int,
    num_tokens: int = NUM_TOKENS,
    stops: tuple[int | None, ...] = STOPS,
) -> ThreadedRing:
    """Serves all prompts at a time, greedily, some up to a stop token. Asserts that outputs are transformers', and that
    steps ran ahead."""
    wholes = [generate(path, tuple(prompt), num_tokens) for prompt in prompts]
    ring, clients = ThreadedRing(runner, depth=depth, is_awaited=True), []
    try:
        for prompt, (output, _), stop in zip(prompts, wholes, cycle(stops), strict=False):
            sampling = generation_pb2.SamplingParams(temperature=0.0)
            if stop is not None:
                sampling.stop_token_ids.append(output[stop])
            clients.append(ring.submit(prompt, num_tokens, sampling))
        while not all(client.ends for client in clients):
            ring.step()
    finally:
        ring.close()
    for client, (output, logits), stop in zip(clients, wholes, cycle(stops), strict=False):
        count = num_tokens if stop is None else output.index(output[stop]) + 1
        assert_same_but_for_ties(client.output, output[:count], logits)
    assert runner.num_ahead > num_tokens
    return ring


def serve_drafted(
    runner: RecordingRunner, path: Path, prompts: list[list[int]], num_drafts: int, num_tokens: int
) -> LocalRing:
    """Serves all prompts at a time, the first half of each output with drafts of which seven of ten are right. Asserts
    that outputs are transformers', and that some drafts were right and some wrong."""
    runner.info = replace(runner.info, max_draft_tokens=num_drafts)
    outputs = [generate(path, tuple(prompt), num_tokens) for prompt in prompts]
    halves = [
        [*prompt, *output[: num_tokens // 2]] for prompt, (output, _) in zip(prompts, outputs, strict=True)
    ]
    ring = LocalRing(runner, KnownDrafter(halves, 512, 7), num_drafts=num_drafts, num_seqs=4)
    clients = [ring.submit(prompt, num_tokens) for prompt in prompts]
    ring.run()
    for client, (output, logits) in zip(clients, outputs, strict=True):
        assert_same_but_for_ties(client.output, output, logits)
    assert 0 < ring.core.draft_totals.num_accepted < ring.core.draft_totals.num_drafted
    return ring
