"""Blocks of a GPU's runner travel by the kernel that copies them: requests go on as if they had stayed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from signalbox.protocol.parts.pulls import ExportOrder, GroupBlock, PullOrder, PullOrders
from signalbox.v1 import generation_pb2
from tests.pairs import in_soak
from tests.worker_svc.drafting.local_ring import LocalRing
from tests.worker_svc.handoff.ends import KEY, Asked, End
from tests.worker_svc.handoff.test_model_handoffs import COUNT, NUM_DRAFTS, assert_moves_as_it_stays, stays
from tests.worker_svc.runner.cuda.copies.scenario import (
    Scenario,
    WrongContentError,
    next_block,
    other_layer,
)
from tests.worker_svc.runner.cuda.copies.streams import LateStreams
from tests.worker_svc.runner.reference import assert_same_but_for_ties, generate, make_prompts, make_runner
from tests.worker_svc.runner.runner_harness import GARBAGE
from worker_svc.core.batch import BlockCopy
from worker_svc.core.step import SlotStart
from worker_svc.runner.cuda import runner as runner_module
from worker_svc.runner.cuda.copies import rows
from worker_svc.runner.cuda.copies.levels import I64
from worker_svc.runner.cuda.copies.rows import Move, PlacedRows, move_by_kernel
from worker_svc.runner.cuda.runner import CudaRunner
from worker_svc.runner.triton import copy as copy_module

ModelDir = Callable[[str], Path]
NUM_TOKENS = 12


@pytest.fixture(autouse=True)
def _by_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention is torch's, which is sooner done here than Triton's; blocks are copied by the kernel, which the
    interpreter runs in one thread at a time."""
    lock = threading.Lock()

    def move(placed: PlacedRows, columns: I64) -> None:
        with lock:
            move_by_kernel(placed, columns)

    monkeypatch.setattr(runner_module, "move_by_torch", move)


def runner_of(path: Path, **settings: Any) -> CudaRunner:
    """A runner whose memory is garbage where nothing has been written. Its copies beside the steps are made at the last
    moment."""
    sizes = {"num_blocks": 160, "block_size": 4, "num_slots": 8, "threads": 1}
    windows = {"mean_request_tokens": 128, "max_num_batched_tokens": 64, "max_draft_tokens": NUM_DRAFTS}
    options = {**sizes, **windows, "shares_blocks": True, **settings}
    late = LateStreams(steps_at_once=True)
    runner = CudaRunner(path, served_model_name="tiny", dtype="float32", order=late, **options)
    runner.info = replace(runner.info, max_draft_tokens=options["max_draft_tokens"])
    runner._cache.fill(GARBAGE)
    for layer in runner._cache.host_layers:
        for stored in layer.stored:
            stored.fill_(GARBAGE)
    if runner._states is not None:
        runner._states.fill(GARBAGE)
    return runner


def test_what_is_read_is_what_was_written() -> None:
    """TR12 to TR15: as with torch's copies, and in one launch whatever the count."""
    for seed in range(2):
        Scenario(LateStreams(seed), move_by_kernel, seed, num_rounds=80).run()


@pytest.mark.parametrize("plant", [next_block, other_layer])
def test_wrong_rows_are_found(plant: Callable[[Move], Move]) -> None:
    with pytest.raises(WrongContentError):
        for seed in range(4):
            Scenario(LateStreams(seed), move_by_kernel, seed, plant).run()


@pytest.mark.parametrize(
    "preset", ["tiny-qwen3-moe", "tiny-gemma3", "hybrid-qwen3-5", *in_soak("tiny-qwen3")]
)
def test_what_was_swapped_goes_on(model_dir: ModelDir, preset: str) -> None:
    """X1, X4, X11, X13: blocks and states of all that comes again, in the steps and beside them."""
    path, prompts = model_dir(preset), make_prompts((140, 90, 70))
    runner = runner_of(path, num_blocks=60, num_host_blocks=400, num_checkpoints=3, max_draft_tokens=0)
    ring = LocalRing(runner, None, num_seqs=4, side_copy_blocks=6)
    for _ in range(2):
        clients = [ring.submit(prompt, NUM_TOKENS) for prompt in prompts]
        ring.run()
        for client, prompt in zip(clients, prompts, strict=True):
            assert_same_but_for_ties(client.output, *generate(path, tuple(prompt), NUM_TOKENS))
    stats = ring.worker.stats
    assert stats.num_host_hit_tokens and stats.num_fences


@pytest.mark.parametrize(
    "preset", ["tiny-qwen3", "hybrid-qwen3-5", *in_soak("tiny-qwen3-moe", "tiny-gemma3")]
)
def test_what_was_handed_over_goes_on(model_dir: ModelDir, preset: str) -> None:
    """HO5, HO12, TR14: by messages, between two workers with GPUs, states and drafts behind them included."""
    path = model_dir(preset)
    drafts = NUM_DRAFTS if preset.startswith("hybrid") else 0
    assert_moves_as_it_stays(runner_of(path), (runner_of(path), runner_of(path)), drafts)


def test_what_was_pulled_is_gone_on_from(model_dir: ModelDir) -> None:
    """PB1, PB4: a prompt whose first blocks, in all groups, came from another worker gives what it gives there."""
    path = model_dir("tiny-gemma3")
    prompt = make_prompts((40,))[0]
    sampling = generation_pb2.SamplingParams(
        temperature=0.7, seed=11, max_tokens=COUNT, ignore_eos=True, logprobs=2
    )
    payload, count = generation_pb2.RequestPayload(sampling=sampling), 16
    request = Asked(prompt, payload, COUNT, b"c" * 16)
    stayed = asyncio.run(stays(runner_of(path), request, list(range(count))))

    async def pulled() -> list[int]:
        async with End("a", runner_of(path)) as a, End("b", runner_of(path)) as b:
            a.add(request.message(0))
            a.start(0, list(range(count)), len(prompt))
            groups = range(1 + len(a.runner.info.groups))
            shown = [GroupBlock(group, block) for group in groups for block in range(8)]
            written = [GroupBlock(group, block + 3) for group in groups for block in range(8)]
            a.step(PullOrders(exports=[ExportOrder(1, KEY, b.name, shown)]))
            order = PullOrder(b.core.last_step_id + 1, 1, KEY, a.name, a.address, written, 10_000_000)
            b.step(PullOrders(order))
            ended = await b.until("block_pull_ended")
            assert not ended.HasField("error"), ended.error
            b.add(request.message(1))
            blocks = np.arange(3, 3 + count, dtype=np.int32)
            b.step(started=[SlotStart(1, blocks, 32, len(prompt) - 32, b.groups(blocks.tolist()))])
            seen = dict[int, int]()
            while not b.tell(seen):
                b.step()
            return [seen[n] for n in range(len(seen))]

    assert asyncio.run(pulled()) == stayed[0]


@pytest.mark.parametrize("preset", ["tiny-gemma3", "hybrid-qwen3-5"])
def test_a_cpu_reads_what_a_gpu_says(model_dir: ModelDir, preset: str) -> None:
    """HO1, TR1: equal layouts have equal bytes; requests do not move where the identity is another (I7)."""
    path = model_dir(preset)
    gpu = runner_of(path)
    cpu = make_runner(
        path,
        num_blocks=200,
        mean_request_tokens=128,
        max_num_batched_tokens=64,
        max_draft_tokens=NUM_DRAFTS,
    )
    assert gpu.info.kv_layout == cpu.info.kv_layout != ""
    assert gpu.info.identity != cpu.info.identity
    assert gpu.block_memory is not None and cpu.block_memory is not None
    for group in range(1 + len(gpu.info.groups)):
        sizes = [tensor[0].nbytes for tensor in gpu._cache.stored_in(group)]
        content = np.random.default_rng(group).bytes(3 * sum(sizes))
        cpu.block_memory.write(group, [5, 1, 7], content)
        gpu.block_memory.write(group, [2, 9, 4], cpu.block_memory.read(group, [5, 1, 7]))
        assert gpu.block_memory.read(group, [2, 9, 4]) == content
    if gpu._states is not None:
        state = np.random.default_rng(9).bytes(len(gpu.read_state(1, 0, 2)))
        cpu.write_state(3, 1, 2, state)
        gpu.write_state(2, 0, 2, cpu.read_state(3, 1, 2))
        assert gpu.read_state(2, 0, 2) == state


def test_a_list_of_copies_is_few_launches(model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """TR12: as many for two blocks as for forty, and none is compiled for a count."""
    launches: list[int] = []

    def counted(placed: PlacedRows, columns: Any) -> None:
        launches.append(len(columns))
        move_by_kernel(placed, columns)

    monkeypatch.setattr(runner_module, "move_by_torch", counted)
    runner = runner_of(model_dir("tiny-qwen3"), num_host_blocks=60)
    for count in (2, 40):
        launches.clear()
        out = [BlockCopy(block, False, block, True) for block in range(count)]
        inward = [BlockCopy(block + count, True, block, False) for block in range(2)]
        runner.copy_blocks([copy for pair in zip(out, [*inward, *out[2:]], strict=True) for copy in pair])
        assert sum(launches) == 2 * count and len(launches) <= 2
    arguments = copy_module.copy_kernel.arg_names[:5]
    assert arguments == ["addresses", "row_words", "copies", "num_copies", "num_tensors"]
    assert rows.WORDS == (8, 4, 2, 1)
