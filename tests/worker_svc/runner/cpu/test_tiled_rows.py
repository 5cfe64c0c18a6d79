"""Rows of weights in tiles: the bytes of the definition, by kernels on any number of threads and without them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.cpu import tiled_rows
from worker_svc.runner.cpu.native.kernels import TILE
from worker_svc.runner.cpu.tiled_rows import TiledRows

OUTPUTS = 7 * TILE + 13
"""The last tile is not full."""
SIGNS = -0x7F7F7F80
FILLING = 9


@pytest.fixture(params=["no kernels", "1 thread", "3 threads"])
def made_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without kernels, or by these on so many threads."""
    before = torch.get_num_threads()
    if request.param == "no kernels":
        monkeypatch.setattr(tiled_rows, "native_kernels", lambda: None)
    elif native_kernels() is None:
        pytest.skip("there is no C++ compiler")
    else:
        torch.set_num_threads(int(request.param[0]))
    yield
    torch.set_num_threads(before)


def by_definition(rows: torch.Tensor, groups: int) -> torch.Tensor:
    """uint8 `[tiles, groups, bytes]` of uint8 `[outputs, bytes]`, one byte at a time."""
    num_tiles = -(-len(rows) // TILE)
    filled = torch.full((num_tiles * TILE, rows.shape[1]), FILLING, dtype=torch.uint8)
    filled[: len(rows)] = rows
    words = filled.view(num_tiles, TILE, groups, -1, 4)
    return words.permute(0, 2, 3, 1, 4).reshape(num_tiles, groups, -1)


def random_bytes(outputs: int, width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(outputs)
    return torch.randint(0, 256, (outputs, width), dtype=torch.uint8, generator=generator)


ORDER = torch.randperm(OUTPUTS, generator=torch.Generator().manual_seed(3))


@pytest.mark.usefixtures("made_by")
@pytest.mark.parametrize("order", [None, ORDER], ids=["as they are", "ordered"])
@pytest.mark.parametrize(("groups", "group_bytes"), [(1, 256), (1, 76), (5, 16), (6, 32), (3, 128)])
def test_tiles_are_what_they_are_defined_as(
    groups: int, group_bytes: int, order: torch.Tensor | None
) -> None:
    parts = [random_bytes(outputs, groups * group_bytes) for outputs in (100, OUTPUTS - 101, 1)]
    rows = torch.cat(parts)
    expected = by_definition(rows if order is None else rows[order], groups)
    tiled = TiledRows(parts, order, FILLING)
    heads = torch.full((len(expected), groups, 64), 77, dtype=torch.uint8)
    packed = torch.cat((heads, torch.zeros_like(expected)), dim=2)
    for tiles in (slice(0, 3), slice(3, len(packed))):
        tiled.pack(tiles, packed[tiles], head_bytes=64)
    assert torch.equal(packed[..., :64], heads)
    assert torch.equal(packed[..., 64:], expected)
    tiled.pack(slice(0, len(packed)), packed, head_bytes=64, flips=SIGNS)
    assert torch.equal(packed[..., 64:], expected ^ 0x80)


@pytest.mark.usefixtures("made_by")
def test_rows_that_do_not_lie_in_one_piece_are_packed_too() -> None:
    """GPT-2 keeps the transpose; a half of a fused weight lies in rows that are further apart."""
    weight = random_bytes(64, 128)
    for part in (weight.T, weight[:, 64:]):
        packed = torch.empty(len(part) // TILE, 1, TILE * 64, dtype=torch.uint8)
        TiledRows([part]).pack(slice(0, len(packed)), packed)
        assert torch.equal(packed, by_definition(part, 1))
