"""What blocks are as bytes, and which workers have the same ones (TR1)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from signalbox.protocol.block_groups import BlockGroup
from tests.worker_svc.transfer.memories import WINDOW, assert_moved, make_memory
from tools.make_random_model import make_model
from worker_svc.core.batch import BlockCopy, RunnerInfo
from worker_svc.runner.sim.model import SimRunner
from worker_svc.runner.torch_runner import TorchRunner
from worker_svc.transfer.block_memory import BlockMemory, OffersBlocks, strip_of
from worker_svc.transfer.errors import TransferError

PRESETS = {
    "tiny-llama": "bfloat16",
    "tiny-gemma3": "float32",  # a group of windows
    "tiny-gemma4-shared": "float32",  # layers that read another's
    "tiny-deepseek-v3": "float32",  # latents: keys that are values, too
    "hybrid-qwen3-next": "float32",  # layers without keys
}


def digest(*strips: str, kinds: tuple[BlockGroup, ...] = (), block_size: int = 4, num_blocks: int = 3) -> str:
    """Of strips like "float32 2x4", all of the spine but for the last, if there is another group."""
    made = []
    for strip in strips:
        dtype, _, shape = strip.partition(" ")
        made.append(strip_of(np.zeros((num_blocks, *map(int, shape.split("x"))), dtype)))
    groups = [made[:-1], made[-1:]] if kinds else [made]
    return BlockMemory(groups, kinds, block_size).digest


def test_digests_tell_blocks_apart_and_not_their_number() -> None:
    """TR1"""
    base = digest("float32 2x4", "float32 4x2", kinds=(WINDOW,))
    others = [
        digest("float32 4x2", "float32 2x4", kinds=(WINDOW,)),
        digest("int32 2x4", "float32 4x2", kinds=(WINDOW,)),
        digest("float32 2x4", "float32 4x2", kinds=(replace(WINDOW, reach=16),)),
        digest("float32 2x4", "float32 4x2", kinds=(replace(WINDOW, kind=2),)),
        digest("float32 2x4", "float32 4x2", kinds=(WINDOW,), block_size=8),
        digest("float32 2x4", "float32 4x2"),
    ]
    assert len({base, *others}) == 1 + len(others)
    many = replace(WINDOW, num_blocks=7, num_host_blocks=3)
    assert digest("float32 2x4", "float32 4x2", kinds=(many,), num_blocks=9) == base


def test_bytes_of_a_message_are_written_where_they_are_wanted() -> None:
    """TR2: inline"""
    source, target = make_memory(40, seed=1), make_memory(60)
    target.write(1, [50, 2], source.read(1, [3, 39]))
    assert_moved(source, target, 1, [3, 39], [50, 2])


@pytest.mark.parametrize(
    ("group", "blocks", "num_bytes"),
    [(0, [1], 239), (0, [1], 241), (0, [1, 2], 240), (0, [40], 240), (0, [-1], 240), (2, [1], 240)],
)
def test_what_does_not_fit_is_refused_and_nothing_written(
    group: int, blocks: list[int], num_bytes: int
) -> None:
    """TR7"""
    memory = make_memory(40)
    with pytest.raises(TransferError):
        memory.write(group, blocks, b"\x01" * num_bytes)
    assert not any(rows.any() for rows in memory.groups[0])


def check_against_copies(runner: SimRunner | TorchRunner) -> None:
    """Asserts that a block has all bytes that the runner copies when it copies a block, and no other's."""
    memory = runner.block_memory
    assert memory is not None and isinstance(runner, OffersBlocks)
    random = np.random.default_rng(0)
    for group in range(1 + len(runner.info.groups)):
        for rows in memory.groups[group]:
            rows[:] = random.integers(0, 255, rows.shape, dtype=np.uint8)
        others = [memory.read(other, [2]) for other in range(len(memory.groups)) if other != group]
        assert memory.read(group, [1]) != memory.read(group, [2])
        runner.copy_blocks([BlockCopy(1, False, 2, False, group)])
        assert memory.read(group, [1]) == memory.read(group, [2])
        assert others == [memory.read(other, [2]) for other in range(len(memory.groups)) if other != group]


def test_blocks_of_the_simulated_model() -> None:
    """TR1"""
    group = BlockGroup(kind=WINDOW.kind, reach=8, num_blocks=6)
    info = RunnerInfo(
        model="sim",
        num_blocks=9,
        block_size=4,
        max_model_len=32,
        vocab_size=64,
        eos_token_ids=(),
        groups=(group,),
    )
    runner = SimRunner(info, shared=True)
    check_against_copies(runner)
    assert runner.block_memory.bytes_per_block(0) == runner.block_memory.bytes_per_block(1) == 4 * 8


@pytest.mark.parametrize("preset", PRESETS)
def test_blocks_of_real_models(preset: str, tmp_path: Path) -> None:
    """TR1, TR4: they lie in shared memory, all of them, and what a block takes is what memory was counted for."""
    runner = TorchRunner(
        make_model(preset, tmp_path, seed=1),
        served_model_name="m",
        dtype=PRESETS[preset],
        num_blocks=24,
        block_size=4,
        max_model_len=64,
        mean_request_tokens=16,
    )
    check_against_copies(runner)
    memory, shapes = runner.block_memory, runner.model.layer_shapes
    assert memory is not None and memory.shared is not None
    size = 4 * torch.empty(0, dtype=runner.model.dtype).element_size()
    assert sum(memory.bytes_per_block(group) for group in range(len(memory.groups))) == size * sum(
        shape.elements for shape in shapes
    )
    assert all(memory.shared.offset_of(rows) is not None for group in memory.groups for rows in group)
