"""Recurrent states whose layers are at several stages are those of one process (RK17)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.gpu.right.drafts import KnownDrafter
from signalbox.v1 import ranks_pb2
from tests.worker_svc.drafting.local_ring import Client, LocalRing
from tests.worker_svc.ranks.groups import group
from tests.worker_svc.ranks.test_group_tokens import alone, preset
from tests.worker_svc.runner.cpu.test_exchange import by_all, communicators
from tests.worker_svc.runner.reference import EPSILON, assert_near_the_best, load_reference, make_prompts
from tests.worker_svc.runner.runner_harness import GARBAGE, Driver
from worker_svc.core.batch import Batch, ModelRunner
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.ranks.pipeline import PipelineRunner
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.model.memory import CPU_MEMORY_SHARE
from worker_svc.runner.recurrent import making
from worker_svc.runner.recurrent.layout import LayerState, StateLayout, StateShape
from worker_svc.runner.torch_runner import TorchRunner
from worker_svc.transfer.errors import TransferError

__all__ = ["preset"]
pytestmark = pytest.mark.timeout(300)
Preset = Callable[[str], Path]
TWO = {"tensor_parallel": 1, "pipeline_parallel": 2}
THREE = {"tensor_parallel": 1, "pipeline_parallel": 3}
NUM_TOKENS = 70
"""Each output passes a boundary."""
DRAFTS = {"speculative": "ngram:4"}
HOST = {"num_checkpoints": 3, "num_host_blocks": 600, "mean_request_tokens": 128}


def fill_states(runner: PipelineRunner) -> None:
    """All versions of all slots, at all stages, are garbage: a read of what was not written since shows."""
    size = len(runner.read_state(0, 0, 0))
    garbage = np.full(size // 4, GARBAGE, np.float32).tobytes()
    for slot in range(runner.info.num_slots):
        for version in range(runner.info.num_state_versions):
            runner.write_state(slot, version, 0, garbage)


def converse(
    runner: ModelRunner, drafter: Drafter | None, depth: int, num_drafts: int
) -> tuple[LocalRing, list[Client]]:
    """Conversations with one system prompt, each of two turns, more than have room at once; then other prompts, in
    slots that others had."""
    ring = LocalRing(runner, drafter, depth=depth, num_drafts=num_drafts, num_seqs=4)
    system = make_prompts((130,))[0]
    first = [ring.submit([*system, *own], NUM_TOKENS) for own in make_prompts((40, 9, 75, 33))]
    ring.run()
    second = [ring.submit([*each.prompt, *each.output, 7, 8, 9], NUM_TOKENS) for each in first]
    ring.run()
    others = [ring.submit(prompt, 20) for prompt in make_prompts((90, 3, 66, 12))]
    ring.run()
    return ring, [*first, *second, *others]


def assert_transformers_own(path: Path, clients: list[Client]) -> None:
    reference = load_reference(path)
    ties = sum(assert_near_the_best(reference, each.prompt, each.output, EPSILON) for each in clients)
    assert ties <= 2


MATRIX = [
    ("hybrid-qwen3-5", TWO, 2, 0, {"num_blocks": 88}),
    ("hybrid-qwen3-5", THREE, 4, 4, {"num_blocks": 88, **DRAFTS}),
    ("hybrid-lfm2", TWO, 1, 4, {"num_blocks": 88, **DRAFTS, **HOST}),
    ("hybrid-falcon-h1", TWO, 2, 4, {"num_blocks": 88, **DRAFTS, **HOST}),
    *(
        pytest.param(*row, marks=pytest.mark.soak)
        for row in (
            ("hybrid-olmo", THREE, 2, 0, {"num_blocks": 88, **HOST}),
            ("hybrid-bamba", THREE, 1, 4, {"num_blocks": 88, **DRAFTS}),
            ("hybrid-falcon-h1", THREE, 4, 0, {"num_blocks": 88}),
            ("hybrid-lfm2", THREE, 4, 0, {"num_blocks": 88}),
            ("hybrid-qwen3-5", TWO | {"tensor_parallel": 2}, 2, 4, {"num_blocks": 88, **DRAFTS, **HOST}),
            ("hybrid-bamba", TWO, 2, 0, {"num_blocks": 88, "num_checkpoints": 1}),
        )
    ),
]


@pytest.mark.parametrize(("name", "parts", "depth", "num_drafts", "settings"), MATRIX)
def test_conversations_at_several_stages_go_on_from_checkpoints(
    preset: Preset, name: str, parts: dict[str, int], depth: int, num_drafts: int, settings: dict[str, Any]
) -> None:
    """RK17, CK2, CK5, SG10, X13: chunks on their way together, preemptions, checkpoints, a host tier and drafts."""
    path = preset(name)
    plain, _ = alone(path, num_blocks=600)
    wholes = [[*each.prompt, *each.output] for each in converse(plain, None, 1, 0)[1]]
    drafter = KnownDrafter(wholes, 512, 7) if num_drafts else None  # seven of ten are right
    with group(path, **parts, **settings) as (runner, _):
        assert isinstance(runner, PipelineRunner)
        fill_states(runner)
        ring, clients = converse(runner, drafter, depth, num_drafts)
    assert_transformers_own(path, clients)
    stats = ring.worker.stats
    assert stats.num_preemptions >= 2 and stats.num_prefix_hit_tokens >= 3 * 128
    assert stats.num_host_hit_tokens or "num_host_blocks" not in settings
    assert ring.num_beside > 20, "steps waited for each other"
    totals = ring.core.draft_totals
    assert 0 < totals.num_accepted < totals.num_drafted or not num_drafts


@pytest.mark.parametrize("parts", [TWO, THREE])
def test_a_state_is_the_parts_of_all_stages(preset: Preset, parts: dict[str, int]) -> None:
    """RK17, HO5: bytes of one process, which each stage takes its own from; of a wrong size nothing is written."""
    path, prompt = preset("hybrid-lfm2"), make_prompts((30,))[0]
    plain, _ = alone(path, num_checkpoints=1)
    assert isinstance(plain, TorchRunner)
    with group(path, **parts, num_checkpoints=1) as (runner, _):
        read = []
        for each in (plain, runner):
            driver = Driver(each, seed=1)  # type: ignore[arg-type]
            slot = driver.add(prompt, 1).slot
            driver.run(chunk_size=30)
            read.append(each.read_state(slot, int(driver.states.version[slot]), 0))
        wanted, content = read
        assert GARBAGE not in np.frombuffer(wanted, "<f4")
        assert len(content) == len(wanted) == runner.info.state_group.bytes_per_checkpoint  # type: ignore[union-attr]
        assert np.allclose(np.frombuffer(content, "<f4"), np.frombuffer(wanted, "<f4"), atol=1e-5)
        other = (slot + 1) % runner.info.num_slots
        runner.write_state(other, 0, 0, content)
        assert runner.read_state(other, 0, 0) == content != runner.read_state(other, 1, 0)
        for num_drafts, wrong in ((0, content[:-4]), (1, content)):
            with pytest.raises(TransferError):
                runner.write_state(other, 1, num_drafts, wrong)
        assert runner.read_state(other, 1, 0) != content
        assert runner.failure is None


def test_each_stage_has_the_states_of_its_layers_alone(preset: Preset) -> None:
    """RK17: one without recurrent layers counts slots and checkpoints, too; what a checkpoint takes is told of all."""
    path = preset("hybrid-qwen3-5")
    plain, _ = alone(path)
    with group(path, **THREE) as (runner, _):
        assert isinstance(runner, PipelineRunner) and isinstance(plain, TorchRunner)
        assert runner.states is not None and runner.states.layers.keys() == set(runner.stage.layers)
        assert runner.info.num_state_versions == 4 and plain.info.num_state_versions == 2
        assert runner.info.state_group == plain.info.state_group


def test_all_stages_have_as_many_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """RK8, RK17: as many slots and checkpoints as the one has room for whose layers keep most."""
    kernels = native_kernels()
    if kernels is None:
        pytest.skip("ranks meet through the native kernels")
    monkeypatch.setattr(making, "available_bytes", lambda _: 3 * 1000 * 40)
    small, large = (LayerState(StateShape((1, size), torch.uint8), None) for size in (10, 50))
    layouts = [StateLayout({0: small}), StateLayout({1: large, 2: large}), StateLayout()]

    def make(each: Any) -> tuple[int, int]:
        model = SimpleNamespace(
            state_layout=layouts[each.rank],
            state_bytes=110,
            split=SimpleNamespace(everyone=each),
            device=torch.device("cpu"),
            module=SimpleNamespace(
                config=SimpleNamespace(get_text_config=lambda: SimpleNamespace(hidden_size=8))
            ),
        )
        store = making.make_store(model, None, None, most_in_flight=3)  # type: ignore[arg-type]
        assert store is not None and store.num_versions == 4
        return store.num_slots, store.num_checkpoints

    with communicators(kernels, 3) as ranks:
        made = by_all(ranks, make)
    slots_of_large = int(40000 * CPU_MEMORY_SHARE) // (5 * 100)
    assert made == [made[0]] * 3
    assert made[0][0] == slots_of_large and 0 < made[0][1] < 2 * slots_of_large


def test_checkpoints_of_prompts_alone(preset: Preset) -> None:
    """RK17, CK11."""
    path = preset("hybrid-qwen3-5")
    with group(path, **TWO, num_blocks=600) as (runner, _):
        assert runner.info.state_group is not None
        runner.info = replace(runner.info, state_group=replace(runner.info.state_group, prompts_only=True))
        ring, clients = converse(runner, None, 2, 0)
    assert_transformers_own(path, clients)
    assert ring.worker.stats.num_prefix_hit_tokens


def test_a_step_that_a_stage_failed_in_finds_the_states_that_it_found(
    preset: Preset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RK14, RK17, SG3: now and then the last stage is told of a query token that there is not, behind its layers. The
    step runs again, and so do those behind it, chunks of the same prompts among them."""
    path = preset("hybrid-qwen3-5")
    with group(path, **TWO, num_blocks=600) as (runner, _):
        assert isinstance(runner, PipelineRunner)
        fill_states(runner)
        write, told = runner._codec.write_batch, list[int]()

        def write_wrongly_at_times(batch: Batch) -> ranks_pb2.RankBatch:
            message = write(batch)
            told.append(len(batch.token_ids))
            if len(told) % 7 == 3:
                message.sample_index = np.array([1 << 20], "<i4").tobytes()
            return message

        monkeypatch.setattr(runner._codec, "write_batch", write_wrongly_at_times)
        ring = LocalRing(runner, None, depth=2, num_seqs=4)
        clients = [ring.submit(prompt, 20) for prompt in make_prompts((190, 150, 170, 9))]
        ring.run()
        assert runner.failure is None
    assert_transformers_own(path, clients)
    assert ring.num_beside > 20 and len(told) > 50
