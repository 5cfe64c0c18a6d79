"""Drafts of models with recurrent states: outputs are those without drafts, however many of them are right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu.right.drafts import KnownDrafter
from tests.worker_svc.drafting.local_ring import LocalRing
from tests.worker_svc.runner.reference import assert_greedy, generate, make_prompts, make_runner
from tests.worker_svc.runner.runner_harness import GARBAGE
from tools.hybrid_families import HYBRID_PRESETS
from tools.make_random_model import make_model
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.core.drafts.ngram import NgramDrafter
from worker_svc.runner.draft_model import load_draft

ModelDir = Callable[[str], Path]
PRESET = "hybrid-qwen3-5"
NUM_DRAFTS, NUM_TOKENS = 4, 90
"""Each output passes a boundary."""


def ring_of(path: Path, drafter: Drafter | None, depth: int = 1, **settings: int) -> LocalRing:
    runner = make_runner(path, num_slots=12, max_draft_tokens=NUM_DRAFTS, **settings)
    assert runner._states is not None
    runner.info = replace(runner.info, max_draft_tokens=NUM_DRAFTS)
    runner._states.fill(GARBAGE)
    return LocalRing(runner, drafter, depth=depth, num_drafts=NUM_DRAFTS if drafter else 0, num_seqs=4)


def check(path: Path, ring: LocalRing, prompts: list[list[int]]) -> None:
    clients = [ring.submit(prompt, NUM_TOKENS) for prompt in prompts]
    ring.run()
    for client in clients:
        assert_greedy(client.output, path, client.prompt, NUM_TOKENS)


@pytest.mark.sampled
@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("preset", HYBRID_PRESETS)
def test_outputs_with_drafts(model_dir: ModelDir, preset: str, depth: int) -> None:
    """SG10, SG11. Float32, chunks, memory for some of the requests, two that begin alike; drafts of which seven of ten
    are right."""
    path = model_dir(preset)
    system = make_prompts((130,))[0]
    prompts = [[*system, *own] for own in make_prompts((40, 9, 75, 33))]
    wholes = [[*prompt, *generate(path, tuple(prompt), NUM_TOKENS)[0]] for prompt in prompts]
    ring = ring_of(path, KnownDrafter(wholes, 512, 7), depth, num_blocks=88)
    check(path, ring, prompts)
    stats, totals = ring.worker.stats, ring.core.draft_totals
    assert stats.num_preemptions >= 3 and stats.num_prefix_hit_tokens
    assert 0 < totals.num_accepted < totals.num_drafted


@pytest.mark.parametrize("luck", [0, 10])
def test_drafts_that_are_all_wrong_or_all_right(model_dir: ModelDir, luck: int) -> None:
    """SG10."""
    path = model_dir(PRESET)
    prompts = make_prompts((60, 61, 20))
    wholes = [[*prompt, *generate(path, tuple(prompt), NUM_TOKENS)[0]] for prompt in prompts]
    ring = ring_of(path, KnownDrafter(wholes, 512, luck), num_blocks=200)
    check(path, ring, prompts)
    assert (ring.core.draft_totals.num_accepted > 0) == (luck > 0)


FEW = ("hybrid-granite", "hybrid-kimi-linear", "hybrid-lfm2")


@pytest.mark.parametrize(
    ("preset", "method"),
    [
        *((PRESET, method) for method in ("ngram", "draft model")),
        *((preset, "ngram") for preset in FEW),
        *(
            pytest.param(preset, "ngram", marks=pytest.mark.soak)
            for preset in HYBRID_PRESETS
            if preset not in (PRESET, *FEW)
        ),
    ],
)
def test_drafts_of_each_method(model_dir: ModelDir, tmp_path: Path, preset: str, method: str) -> None:
    """SG10, D6."""
    path = model_dir(preset)
    ring = ring_of(path, None, num_blocks=200)
    drafter: Drafter = NgramDrafter(1, 4)
    if method == "draft model":
        draft_dir = make_model("tiny-qwen3", tmp_path, seed=2)
        drafter = load_draft(draft_dir, path, dtype="float32", device="cpu", block_size=4).on(ring._runner)
    ring = LocalRing(ring._runner, drafter, num_drafts=NUM_DRAFTS, num_seqs=4)
    check(path, ring, [[5, 6, 7, 8] * 6, *make_prompts((60,))])
    assert ring.core.draft_totals.num_drafted
