"""Outputs are the same with and without drafts, whatever the depth, and whatever happens to the blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from signalbox.v1 import generation_pb2
from tests.worker_svc.drafting.local_ring import GREEDY, Client, LocalRing, fill_with_garbage
from tests.worker_svc.runner.reference import assert_greedy
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.core.drafts.ngram import NgramDrafter
from worker_svc.runner.draft_model import DraftModel, LoadedDraft, load_draft
from worker_svc.runner.torch_runner import TorchRunner

NUM_DRAFTS, NUM_TOKENS = 3, 40
SEEDED = generation_pb2.SamplingParams(temperature=0.8, top_k=40, top_p=0.95, seed=7)
CACHES: dict[str, dict[str, int]] = {
    "undisturbed": {"num_blocks": 400, "num_host_blocks": 0},
    "preempted": {"num_blocks": 40, "num_host_blocks": 0},
    "swapped": {"num_blocks": 40, "num_host_blocks": 200},
}
SIZES = ("num_blocks", "num_host_blocks")
Make = Callable[[TorchRunner], Drafter | None]


def make_prompts() -> list[list[int]]:
    """Two begin alike, and one repeats itself."""
    random = np.random.default_rng(3)
    first = random.integers(3, 512, 18).tolist()
    return [first, [*first[:12], 9, 8, 7], random.integers(3, 512, 33).tolist(), [5, 6, 7, 8] * 6]


@cache
def load_target(path: Path) -> TorchRunner:
    """With the largest of the caches; rings may be told of less."""
    sizes = {name: max(sizes[name] for sizes in CACHES.values()) for name in SIZES}
    options: dict[str, Any] = {"dtype": "float32", "block_size": 4, "threads": 1, "max_model_len": 120}
    return TorchRunner(path, served_model_name="tiny", **options, **sizes)


@cache
def load(path: Path, target: Path) -> LoadedDraft:
    return load_draft(path, target, dtype="float32", device="cpu", block_size=4)


def make_draft(path: Path, target: Path, runner: TorchRunner) -> DraftModel:
    return load(path, target).on(runner)


def run_all(
    target: Path, make: Make | None, cache: str, depth: int, sampling: generation_pb2.SamplingParams
) -> tuple[list[Client], LocalRing]:
    """All prompts at once, on a model whose cache starts as garbage."""
    runner = load_target(target)
    fill_with_garbage(runner._cache)
    runner.info = replace(runner.info, max_draft_tokens=NUM_DRAFTS, **CACHES[cache])
    drafter = make(runner) if make is not None else None
    if isinstance(drafter, DraftModel):
        fill_with_garbage(drafter.cache)
    ring = LocalRing(runner, drafter, depth=depth, num_drafts=NUM_DRAFTS if drafter else 0)
    clients = [ring.submit(prompt, NUM_TOKENS, sampling) for prompt in make_prompts()]
    for _ in range(12):
        ring.step()
    clients += [ring.submit(prompt, NUM_TOKENS, sampling) for prompt in make_prompts()]
    ring.run()
    assert all(len(client.ends) == 1 for client in clients)
    return clients, ring


@pytest.fixture(scope="module")
def undrafted(target_dir: Path) -> list[list[int]]:
    """Seeded outputs without drafts."""
    clients, _ = run_all(target_dir, None, "undisturbed", 1, SEEDED)
    return [client.output for client in clients]


@pytest.mark.sampled
@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("method", ["none", "ngram", "draft", "other draft"])
def test_same_output(
    method: str, cache: str, depth: int, target_dir: Path, other_dir: Path, undrafted: list[list[int]]
) -> None:
    """D2, Y1."""
    makes: dict[str, Make | None] = {
        "none": None,
        "ngram": lambda _: NgramDrafter(1, 4),
        "draft": partial(make_draft, target_dir, target_dir),
        "other draft": partial(make_draft, other_dir, target_dir),
    }
    clients, ring = run_all(target_dir, makes[method], cache, depth, GREEDY)
    for client in clients:
        assert_greedy(client.output, target_dir, client.prompt, NUM_TOKENS)
    seeded, seeded_ring = run_all(target_dir, makes[method], cache, depth, SEEDED)
    assert [client.output for client in seeded] == undrafted
    assert (ring.worker.stats.num_preemptions > 0) == (cache != "undisturbed")
    assert (ring.worker.stats.num_host_hit_tokens > 0) == (cache == "swapped")
    if method != "none":
        assert ring.core.draft_totals.num_drafted > 50
        assert seeded_ring.core.draft_totals.num_drafted > 0
    if method == "draft":
        # A model drafts for itself without fault, if all that it reads is what it has written.
        assert ring.acceptance > 0.99
        assert 0 < seeded_ring.acceptance < 0.99
    if method == "other draft":
        assert ring.acceptance < 0.5
