"""Draft layers follow the copies that run beside the steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.worker_svc.drafting.local_ring import LocalRing
from tests.worker_svc.runner.reference import assert_greedy, make_runner
from worker_svc.runner.draft_model import load_draft

NUM_DRAFTS, NUM_TOKENS = 3, 40


def test_what_the_draft_model_has_computed_is_swapped_too(target_dir: Path) -> None:
    """A model drafts for itself without fault, if all that it reads is what it has written."""
    runner = make_runner(target_dir, max_model_len=120, num_blocks=40, num_host_blocks=200)
    runner._cache.fill(1e4)
    runner.info = replace(runner.info, max_draft_tokens=NUM_DRAFTS)
    draft = load_draft(target_dir, target_dir, dtype="float32", device="cpu", block_size=4).on(runner)
    draft.cache.fill(1e4)
    ring = LocalRing(runner, draft, depth=2, num_drafts=NUM_DRAFTS, side_copy_blocks=2)
    random = np.random.default_rng(3)
    prompts = [random.integers(3, 512, length).tolist() for length in (18, 15, 33, 24)]
    clients = [ring.submit(prompt, NUM_TOKENS) for prompt in (*prompts, *prompts)]
    ring.run()
    for client in clients:
        assert_greedy(client.output, target_dir, client.prompt, NUM_TOKENS)
    stats = ring.worker.stats
    assert stats.num_fences > 0 and stats.num_host_hit_tokens > 0
    assert ring.acceptance > 0.99
