"""Memory that is given back while a model is loaded."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
import torch

from worker_svc.weights.heap import HeapTrim
from worker_svc.weights.held import HeldMatrix, allocate, hold, hold_rounded
from worker_svc.weights.held_rows import HeldRows, are_alike
from worker_svc.weights.pages import give_up
from worker_svc.weights.quantised import QuantisedMatrix
from worker_svc.weights.rounding import GROUP_SIZE, round_to_eight_bits
from worker_svc.weights.tensor_file import MappedFile, forget_mapped

PAGE = mmap.PAGESIZE


def test_the_heap_is_trimmed_each_time_that_enough_was_made() -> None:
    trimmed: list[int] = []
    heap = HeapTrim(lambda pad: trimmed.append(pad) or 1, step_bytes=100)
    for _ in range(5):
        heap.add(60)
    assert trimmed == [0, 0], "behind 120 bytes, and behind 120 more"
    HeapTrim(None).now()


def test_only_whole_pages_of_a_tensor_are_given_up() -> None:
    memory = allocate((4 * PAGE,), torch.uint8)
    memory.fill_(7)
    give_up(memory[10 : 3 * PAGE + 10])
    assert memory[:PAGE].eq(7).all() and memory[3 * PAGE :].eq(7).all()
    assert not memory[PAGE : 3 * PAGE].any(), "pages of its own are zero when they are taken again"


def test_mapped_pages_are_read_anew_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\5" * 4 * PAGE)
    mapped = MappedFile(tmp_path / "file").view(0, 4 * PAGE)
    own = torch.full((4 * PAGE,), 5, dtype=torch.uint8)
    for tensor in (mapped, own):
        forget_mapped(tensor)
        assert tensor.eq(5).all()


def make_held(outputs: int, seed: int) -> HeldMatrix:
    generator = torch.Generator().manual_seed(seed)
    return hold(round_to_eight_bits(torch.randn(outputs, 2 * GROUP_SIZE, generator=generator)))


def test_rows_of_several_matrices_are_the_rows_of_each() -> None:
    parts = [make_held(outputs, outputs) for outputs in (32, 48)]
    order = torch.randperm(80, generator=torch.Generator().manual_seed(1))
    scales = torch.cat([part.scales for part in parts])
    rows, ordered = HeldRows(parts), HeldRows(parts, order)
    assert rows.shape == ordered.shape == (80, 2 * GROUP_SIZE)
    assert torch.equal(rows.scales, scales) and torch.equal(ordered.scales, scales[order])


def test_rows_are_given_up_only_where_they_lie_together() -> None:
    parts = [make_held(2 * PAGE // GROUP_SIZE, seed) for seed in range(2)]
    before = [part.rows().codes.clone() for part in parts]
    HeldRows(parts).give_up(slice(0, len(before[0])))
    HeldRows(parts[:1], torch.arange(len(before[0]))).give_up(slice(0, len(before[0])))
    assert all(torch.equal(part.rows().codes, codes) for part, codes in zip(parts, before, strict=True))
    HeldRows(parts[:1]).give_up(slice(0, len(before[0])))
    assert not parts[0].codes.any()


def test_matrices_that_are_kept_in_different_ways_are_not_alike() -> None:
    eight = make_held(32, 0)
    four = hold(QuantisedMatrix(torch.ones(32, 64, dtype=torch.int8), torch.ones(32, 2), None, 4, 32))
    assert are_alike([eight, eight]) and not are_alike([eight, four])


@pytest.mark.parametrize("outputs", [1, 31, 700])
def test_rounding_few_rows_at_a_time_gives_the_same_as_all_at_once(outputs: int) -> None:
    weight = torch.randn(outputs, 32 * GROUP_SIZE, generator=torch.Generator().manual_seed(0))
    parts = hold_rounded(weight, round_to_eight_bits)
    whole = hold(round_to_eight_bits(weight))
    assert torch.equal(parts.codes, whole.codes) and torch.equal(parts.scales, whole.scales)
    assert parts.form == whole.form
