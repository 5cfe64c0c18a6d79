"""Layers with windows have blocks of their own, beside those that see all: outputs are those of one group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from signalbox.protocol.block_groups import SPINE
from signalbox.protocol.enums import BlockGroupKind
from tests.worker_svc.drafting.local_ring import Client, LocalRing
from tests.worker_svc.lone_ring import LoneRing
from tests.worker_svc.runner.reference import (
    assert_greedy,
    assert_same_but_for_ties,
    generate,
    make_prompts,
    make_runner,
)
from tests.worker_svc.runner.runner_harness import GARBAGE
from tools.make_random_model import PRESETS
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.runner.attention.kv_cache import LayerShape
from worker_svc.runner.attention.layer_groups import Need, with_blocks, with_host_tier, within_bytes
from worker_svc.runner.cpu.decoder import FusedDecoder
from worker_svc.runner.cpu.flags import BFLOAT16_CPU_FLAGS, cpu_flags
from worker_svc.runner.torch_runner import TorchRunner

ModelDir = Callable[[str], Path]
NUM_TOKENS = 64
MIXED = [
    *("cohere2", "exaone4", "gemma2", "gemma3", "gemma4", "gemma4-moe", "gemma4-shared", "gemma4-unified"),
    *("gpt-oss", "llama4", "llama4-plain", "ministral", "olmo3"),
]
UNIFORM = ["mistral", "mixtral", "phi3", "starcoder2"]
"""All layers have the window: their spine holds nothing."""
WINDOW = (int(BlockGroupKind.WINDOW), 512)
SEES_ALL, SEES_512 = LayerShape(1, 256, 256), LayerShape(1, 256, 256, sees=WINDOW)
GEMMA = [*[SEES_512] * 5, SEES_ALL] * 3


def grouped(path: Path, **settings: Any) -> TorchRunner:
    """A runner whose groups have little more than they need, full of garbage."""
    options = {"num_blocks": 160, "mean_request_tokens": 128, "max_num_batched_tokens": 8} | settings
    runner = make_runner(path, **options)
    assert runner.info.groups and runner.info.groups[0].num_blocks < runner.info.num_blocks
    runner._cache.fill(GARBAGE)
    return runner


class _Guesses(Drafter):
    """Knows how sequences go on, and is wrong of each fourth token."""

    def __init__(self, known: Sequence[list[int]]) -> None:
        self._known = known

    def propose(self, slot: int, tokens: NDArray[np.int32], limit: int) -> NDArray[np.int32]:
        """As `Drafter.propose`."""
        known = next(each for each in self._known if each[: len(tokens)] == tokens.tolist())
        guesses = np.array(known[len(tokens) : len(tokens) + limit], np.int32)
        return np.where(guesses % 4, guesses, guesses + 1).astype(np.int32)


def run(runner: TorchRunner, prompts: Sequence[list[int]], **options: Any) -> tuple[list[Client], LocalRing]:
    ring = LocalRing(runner, options.pop("drafter", None), **options)
    clients = [ring.submit(prompt, NUM_TOKENS) for prompt in prompts]
    ring.run()
    return clients, ring


def test_the_families_with_windows_are_those_named_here() -> None:
    named = {f"tiny-{name}" for name in (*MIXED, *UNIFORM)}
    assert named <= set(PRESETS)


@pytest.mark.sampled
@pytest.mark.parametrize("name", [*MIXED, *UNIFORM])
def test_greedy_output_equals_generate(model_dir: ModelDir, name: str) -> None:
    """GR1, WB1. Eight requests of 64 tokens in chunks, in float32, in memory for half of them."""
    path = model_dir(f"tiny-{name}")
    runner, prompts = grouped(path), make_prompts()
    assert (SPINE in runner._layout.of_layers) == (name in MIXED)
    clients, ring = run(runner, prompts)
    near_ties = sum(
        assert_greedy(client.output, path, prompt, NUM_TOKENS)
        for client, prompt in zip(clients, prompts, strict=True)
    )
    assert near_ties <= 1
    held = [pool.num_available for pool in ring.worker.pools]
    assert held == [pool.num_blocks for pool in ring.worker.pools], "blocks are left behind"


@pytest.mark.parametrize("name", ["mistral", "gemma3", "gpt-oss"])
def test_bfloat16_is_the_same_bit_for_bit(model_dir: ModelDir, name: str) -> None:
    """GR1, Y1: other blocks are read, and the same numbers. One call for all layers, of the first; and none of it
    remembers a batch's tables."""
    path, prompts = model_dir(f"tiny-{name}"), make_prompts()
    # Without the dot product bfloat16 is not the same where prompts are cut elsewhere: then each step takes them whole.
    seqs = 8 if BFLOAT16_CPU_FLAGS & cpu_flags() else 16
    whole = make_runner(path, dtype="bfloat16", num_blocks=160)
    assert not whole.info.groups
    expected = [client.output for client in run(whole, prompts, num_seqs=seqs)[0]]
    runner = grouped(path, dtype="bfloat16")
    assert [client.output for client in run(runner, prompts, num_seqs=seqs)[0]] == expected
    runner.check()
    assert [client.output for client in run(runner, prompts, num_seqs=seqs)[0]] == expected
    decoders = [m for m in runner.model.module.modules() if isinstance(m, FusedDecoder)]
    assert len(decoders) <= (name == "mistral")


@pytest.mark.parametrize("name", ["gemma3", "gemma4-shared", "llama4"])
def test_drafts_preemptions_and_hits(model_dir: ModelDir, name: str) -> None:
    """WB2, WB5: with drafts, some of which are right; requests lose their blocks, and later ones go on from what those
    have left."""
    path = model_dir(f"tiny-{name}")
    prompts = [[5, 6, 7, 8] * 10 + [number, 9] for number in range(20, 26)]
    expected = [generate(path, tuple(prompt), NUM_TOKENS) for prompt in prompts]
    runner = grouped(path, num_blocks=90, max_draft_tokens=3)
    runner.info = replace(runner.info, max_draft_tokens=3)
    known = [[*prompt, *output] for prompt, (output, _) in zip(prompts, expected, strict=True)]
    ring = LocalRing(runner, _Guesses(known), num_drafts=3)
    for turn in range(2):
        clients = [ring.submit(prompt, NUM_TOKENS) for prompt in prompts]
        ring.run()
        for client, (output, logits) in zip(clients, expected, strict=True):
            assert_same_but_for_ties(client.output, output, logits)
        assert turn or any(client.preempted_at for client in clients)
    stats = ring.worker.stats
    assert stats.num_accepted_tokens and stats.num_prefix_hit_tokens >= 32 * len(prompts)


@pytest.mark.parametrize("name", ["gemma3", "phi3"])
def test_a_worker_goes_on_alone_and_is_taken_over(model_dir: ModelDir, name: str) -> None:
    """WB4, WB6: its scheduler goes while prompts are computed and rows decode; another one adopts what it has."""
    path = model_dir(f"tiny-{name}")
    runner, prompts = grouped(path, num_slots=None), make_prompts((40, 61, 17, 5))
    ring = LoneRing(runner, num_seqs=8)
    try:
        clients = [ring.submit(prompt, NUM_TOKENS) for prompt in prompts]
        for _ in range(20):
            ring.step()
        ring.lend(16)
        ring.lose_scheduler()
        ring.run_alone(10)
        snapshot = ring.find_scheduler()
        assert any(group.first for slot in snapshot.slots for group in slot.group_tables)
        clients.append(ring.submit(prompts[0], NUM_TOKENS))
        ring.run()
    finally:
        ring.close()
    for client, prompt in zip(clients, [*prompts, prompts[0]], strict=True):
        assert_greedy(client.output, path, prompt, NUM_TOKENS)


@pytest.mark.sampled
@pytest.mark.parametrize("side_copy_blocks", [0, 2])
@pytest.mark.parametrize("name", [*MIXED, *UNIFORM])
def test_windows_come_back_from_the_host_tier(model_dir: ModelDir, name: str, side_copy_blocks: int) -> None:
    """X11, X12, WB5: requests lose their blocks, and later ones find what the device has given away since."""
    path, prompts = model_dir(f"tiny-{name}"), make_prompts((45, 33, 61, 50, 38, 57))
    runner = grouped(path, num_blocks=84, num_host_blocks=400)
    for layer in runner._cache.host_layers:
        for stored in layer.stored:
            stored.fill_(GARBAGE)
    ring = LocalRing(runner, None, side_copy_blocks=side_copy_blocks)
    near_ties = 0
    for _ in range(2):
        clients = [ring.submit(prompt, NUM_TOKENS) for prompt in prompts]
        ring.run()
        near_ties += sum(
            assert_greedy(client.output, path, prompt, NUM_TOKENS)
            for client, prompt in zip(clients, prompts, strict=True)
        )
    assert near_ties <= 1
    worker = ring.worker
    assert worker.stats.num_preemptions and worker.stats.num_host_hit_tokens
    assert bool(worker.stats.num_fences) == bool(side_copy_blocks)
    assert all(len(host) for host in worker.hosts), "a group was never swapped"


def test_a_host_tier_is_divided_by_what_requests_need() -> None:
    """X11: places for the windows of as many requests as its blocks of the spine are for."""
    need = Need(16, 10_240, 2048, 1 << 17)
    layout = with_host_tier(with_blocks(GEMMA, 6400, need, 2), 1281, need)
    assert [group.num_host_blocks for group in layout.groups] == [3 * (512 // 16 + 2)]
    assert not with_host_tier(layout, 0, need).groups[0].num_host_blocks


def test_memory_is_divided_by_what_requests_need() -> None:
    """GR2: Gemma's five of six layers with a window of 512, for requests of 10,240 tokens."""
    need = Need(16, 10_240, 2048, 1 << 17)
    layout = within_bytes(GEMMA, 8 << 30, need, 2)
    assert layout is not None
    (group,) = layout.groups
    block_bytes = 512 * 16 * 2
    assert (group.reach, group.bytes_per_block) == (512, 15 * block_bytes)
    assert layout.of_layers == (1, 1, 1, 1, 1, 0) * 3
    taken = layout.num_blocks * 3 * block_bytes + group.num_blocks * group.bytes_per_block
    assert 0.99 * (8 << 30) < taken <= 8 << 30
    num_requests = layout.num_blocks * 16 / 10_240
    assert group.num_blocks == pytest.approx(num_requests * (512 / 16 + 2) + 2 * 2048 / 16, rel=0.01)
    held_before = (8 << 30) // (18 * block_bytes) * 16
    assert layout.num_blocks * 16 > 4 * held_before


@pytest.mark.parametrize(
    ("shapes", "num_bytes", "tokens"),
    [
        ([SEES_ALL] * 3, 8 << 30, 4096),
        (GEMMA, 1 << 20, 4096),
        (GEMMA, 8 << 30, 256),
    ],
)
def test_what_gains_nothing_stays_one_group(shapes: list[LayerShape], num_bytes: int, tokens: int) -> None:
    """GR5: no windows; too little memory for a request; requests no longer than the window."""
    layout = within_bytes(shapes, num_bytes, Need(16, tokens, 2048, max(tokens, 300)), 2)
    assert layout is None or not layout.groups
    assert not with_blocks(shapes, 40, Need(16, tokens, 2048, 1 << 16), 2).groups


def test_a_model_whose_layers_all_have_the_window_has_a_spine_of_numbers() -> None:
    """GR1."""
    layout = within_bytes([SEES_512] * 4, 1 << 28, Need(16, 4096, 512, 1 << 16), 2)
    assert layout is not None and set(layout.of_layers) == {1}
    (group,) = layout.groups
    assert group.num_blocks * group.bytes_per_block <= 1 << 28
    assert layout.num_blocks >= np.ceil((1 << 16) / 16)
