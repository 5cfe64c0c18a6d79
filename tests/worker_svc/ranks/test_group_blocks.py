"""Blocks of a group of ranks travel as bytes: those of all ranks, one behind the other (RK11)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.pairs import in_soak
from tests.worker_svc.ranks.groups import group, settings_for
from tests.worker_svc.runner.runner_harness import Driver
from tools.make_random_model import make_model
from worker_svc.ranks.blocks import cut
from worker_svc.ranks.runners import LeadingRunner
from worker_svc.runner.torch_runner import TorchRunner
from worker_svc.runner_factory import make_runner
from worker_svc.transfer.errors import TransferError

pytestmark = pytest.mark.timeout(180)
PARTS = ({"tensor_parallel": 2}, {"tensor_parallel": 1, "pipeline_parallel": 2})
"""Of each layer, and layers of their own."""


@pytest.mark.parametrize("parts", PARTS)
def test_a_request_goes_on_where_its_blocks_are(tmp_path: Path, parts: dict[str, int]) -> None:
    """What one group has computed, another one decodes from, as the first would have."""
    path = make_model("tiny-llama", tmp_path, seed=1)
    plain, _ = make_runner(settings_for(path, tensor_parallel=1))
    with group(path, **parts) as (source, _), group(path, **parts) as (target, _):
        assert source.info.kv_layout == target.info.kv_layout != ""
        assert isinstance(plain, TorchRunner) and plain.info.kv_layout != source.info.kv_layout
        assert (
            source.block_memory is not None
            and target.block_memory is not None
            and plain.block_memory is not None
        )
        assert source.block_memory.bytes_per_block(0) == plain.block_memory.bytes_per_block(0)
        here, there = Driver(source, seed=1), Driver(target, seed=2)
        random = np.random.default_rng(0)
        prompt = random.integers(3, 500, 30).tolist()
        first, second = here.add(prompt, 12), there.add(prompt, 12)
        assert first.blocks != second.blocks
        here.run(chunk_size=30)
        # All of the prompt but its last token is there: that is computed anew.
        content = source.block_memory.read(0, first.blocks)
        target.block_memory.write(0, second.blocks, content)
        assert target.block_memory.read(0, second.blocks) == content
        second.num_computed = len(prompt) - 1
        there.run(chunk_size=1)
        assert second.output == first.output
        with pytest.raises(TransferError, match="blocks have"):
            target.block_memory.write(0, second.blocks, content[:-1])
        with pytest.raises(TransferError):
            source.block_memory.read(0, [10_000])
        with pytest.raises(TransferError):
            source.block_memory.read(3, [0])
        assert source.failure is None and target.failure is None


@pytest.mark.parametrize("parts", [PARTS[0], *in_soak(PARTS[1])])
def test_records_of_a_disk_are_those_of_all_ranks(tmp_path: Path, parts: dict[str, int]) -> None:
    path = make_model("tiny-gemma3", tmp_path, seed=1)
    with group(path, **parts) as (runner, _):
        assert_all_are_kept(runner)


def test_stages_without_keys_have_no_part_of_blocks(tmp_path: Path) -> None:
    """RK15, RK17: of three stages one alone attends; blocks and records are that one's."""
    path = make_model("hybrid-lfm2", tmp_path, seed=1)
    with group(path, tensor_parallel=1, pipeline_parallel=3) as (runner, _):
        assert_all_are_kept(runner)
        memory = runner.block_memory
        assert memory is not None and memory.bytes_per_block(0) == runner.records.record_bytes()[0]
        content = np.random.default_rng(1).bytes(2 * memory.bytes_per_block(0))
        memory.write(0, [5, 2], content)
        assert memory.read(0, [5, 2]) == content
        with pytest.raises(TransferError):
            memory.read(0, [runner.info.num_blocks])


def assert_all_are_kept(runner: LeadingRunner) -> None:
    """Records of all groups are read as they were written; rank 0 has a part of them."""
    records, random = runner.records, np.random.default_rng(0)
    for number, size in enumerate(records.record_bytes()):
        assert size % 2 == 0 and runner.blocks.record_bytes()[number] < size
        blocks = np.array([3, 1, 4], np.int32)
        wanted = random.integers(0, 100, (3, size)).astype(np.uint8)
        records.writes_aside(number, blocks)(wanted)
        assert np.array_equal(records.reads_aside(number, blocks[::-1].copy())(), wanted[::-1])
    assert runner.failure is None


def test_content_is_cut_to_the_ranks() -> None:
    assert cut(b"aabbbc", [2, 3, 1], "blocks") == [b"aa", b"bbb", b"c"]
    with pytest.raises(TransferError, match="blocks have 6 bytes, not 5"):
        cut(b"aabbb", [2, 3, 1], "blocks")
