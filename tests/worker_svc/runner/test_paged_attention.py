"""Paged attention against a float64 reference that knows nothing of blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.worker_svc.runner.reference import attend_in_float64
from worker_svc.runner.attention import attention
from worker_svc.runner.attention.attention import PagedBatch, attend
from worker_svc.runner.attention.kv_cache import KVCache, LayerCache, LayerShape
from worker_svc.runner.attention.torch_attention import Scores
from worker_svc.runner.cpu.native.kernels import load_kernels

GARBAGE = 1e4
TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 1e-2}
SHAPES = [(4, 4, 16), (4, 2, 32), (8, 1, 64), (6, 2, 128)]
"""Query heads, KV heads, head dimension."""
Row = tuple[int, int]
"""Number of positions known before, number of query tokens."""
DECODE_ROWS: list[Row] = [(0, 1), (1, 1), (15, 1), (16, 1), (40, 1), (77, 4), (126, 5), (300, 1)]
PREFILL_ROWS: list[Row] = [(0, 7), (5, 16), (33, 1), (250, 20), (0, 530)]


class Case:
    """Random queries, keys and values of some rows, a cache with them in shuffled blocks, and the answer."""

    def __init__(
        self,
        rows: list[Row],
        num_decode_rows: int,
        shape: tuple[int, int, int],
        *,
        block_size: int = 16,
        dtype: torch.dtype = torch.float32,
        seed: int = 0,
    ) -> None:
        num_heads, num_kv_heads, dim = shape
        torch.manual_seed(seed)
        lengths = [known + new for known, new in rows]
        width = -(-max(lengths) // block_size) + 1
        order = np.random.default_rng(seed).permutation(len(rows) * width).astype(np.int32)
        cache = KVCache(
            [LayerShape(num_kv_heads, dim, dim)],
            num_blocks=len(rows) * width,
            block_size=block_size,
            dtype=dtype,
            device=torch.device("cpu"),
        )
        cache.fill(GARBAGE)
        self.batch = PagedBatch(
            cache=cache,
            num_decode_rows=num_decode_rows,
            query_starts=np.cumsum([0] + [new for _, new in rows]).astype(np.int32),
            positions=np.concatenate([np.arange(a, a + n) for a, n in rows]).astype(np.int32),
            block_tables=order.reshape(len(rows), width),
            device=torch.device("cpu"),
        )
        self.layer = cache.layers[0]
        # Widely spread scores, so that a key too many or too few shows.
        self.keys = [(2 * torch.randn(n, num_kv_heads, dim)).to(dtype) for n in lengths]
        self.values = [torch.randn(n, num_kv_heads, dim).to(dtype) for n in lengths]
        self.query = torch.randn(sum(n for _, n in rows), num_heads, dim).to(dtype)
        for i, n in enumerate(lengths):
            blocks = self.batch.block_table_tensor[i, torch.arange(n) // block_size]
            self.layer.write(self.keys[i], self.values[i], blocks, torch.arange(n) % block_size)

    def expected(self, scores: Scores) -> torch.Tensor:
        starts = self.batch.query_starts
        parts = [
            attend_in_float64(
                self.query[starts[i] : starts[i + 1]],
                self.keys[i],
                self.values[i],
                int(self.batch.positions[starts[i]]),
                scores,
            )
            for i in range(self.batch.num_rows)
        ]
        return torch.cat(parts)

    def error(self, scores: Scores) -> float:
        """Largest difference to the reference, over the size of the values."""
        out = attend(self.query, self.layer, self.batch, scores)
        assert out.dtype == self.query.dtype
        return float((out.double() - self.expected(scores)).abs().max())


needs_compiler = pytest.mark.skipif(load_kernels() is None, reason="there is no C++ compiler")


@pytest.fixture(params=[pytest.param("native", marks=needs_compiler), "torch"])
def takes_decode_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The native kernels, and plain torch where there is no compiler."""
    if request.param == "torch":
        monkeypatch.setattr(attention, "native_kernels", lambda: None)


@pytest.mark.sampled
@pytest.mark.usefixtures("takes_decode_rows")
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("window", [None, 1, 16, 37])
@pytest.mark.parametrize("shape", SHAPES)
def test_decode_rows(shape: tuple[int, int, int], window: int | None, dtype: torch.dtype) -> None:
    case = Case(DECODE_ROWS, len(DECODE_ROWS), shape, dtype=dtype)
    scores = Scores(scaling=shape[2] ** -0.5, sliding_window=window)
    assert (attention.kernels_for(case.query, case.layer) is None) == (attention.native_kernels() is None)
    assert case.error(scores) < 2 * TOLERANCES[dtype]


@pytest.mark.sampled
@needs_compiler
@pytest.mark.parametrize("seed", range(24))
def test_native_kernel_on_random_cases(seed: int) -> None:
    """Any block size, heads, window, soft cap and sinks, contexts beyond several splits."""
    random = np.random.default_rng(seed)
    group, num_kv_heads = int(random.integers(1, 9)), int(random.integers(1, 5))
    shape = (group * num_kv_heads, num_kv_heads, int(random.choice([16, 48, 64, 80, 128, 192])))
    rows = [(int(random.integers(0, 700)), int(random.integers(1, 5))) for _ in range(6)]
    dtype = torch.float32 if seed % 2 else torch.bfloat16
    case = Case(
        rows, len(rows), shape, block_size=int(random.choice([1, 8, 16, 32, 48, 256])), dtype=dtype, seed=seed
    )
    scores = Scores(
        scaling=shape[2] ** -0.5,
        sliding_window=None if random.random() < 0.5 else int(random.integers(1, 400)),
        softcap=None if random.random() < 0.5 else float(random.choice([2.0, 50.0])),
        sinks=None if random.random() < 0.5 else torch.from_numpy(random.normal(0, 2, shape[0])).to(dtype),
    )
    assert attention.kernels_for(case.query, case.layer) is not None
    assert case.error(scores) < 2 * TOLERANCES[dtype]


@needs_compiler
def test_native_kernel_reads_strided_queries_and_other_value_sizes() -> None:
    """Queries inside a fused product, and values that are wider than keys."""
    case = Case([(200, 1), (30, 2)], 2, (4, 2, 32))
    scores = Scores(scaling=0.2)
    inside = torch.full((3, 9, 32), GARBAGE)
    inside[:, 2:6] = case.query
    assert torch.equal(
        attend(inside[:, 2:6], case.layer, case.batch, scores),
        attend(case.query, case.layer, case.batch, scores),
    )
    wide = LayerCache(case.layer.keys, torch.cat([case.layer.values, 2 * case.layer.values], dim=-1))
    out = attend(case.query, wide, case.batch, scores)
    expected = case.expected(scores)
    assert (out - torch.cat([expected, 2 * expected], dim=-1)).abs().max() < 4e-6


@pytest.mark.sampled
@needs_compiler
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_native_kernel_does_not_depend_on_the_threads(dtype: torch.dtype) -> None:
    case = Case([(900, 1), (400, 3), (7, 1)], 3, (8, 4, 64), dtype=dtype)
    results = []
    threads = torch.get_num_threads()
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append(attend(case.query, case.layer, case.batch, Scores(scaling=0.125)))
    torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("window", [None, 1, 16, 37])
@pytest.mark.parametrize("shape", SHAPES[1:3])
def test_prefill_rows(shape: tuple[int, int, int], window: int | None, dtype: torch.dtype) -> None:
    """Chunks over several tiles, and windows that leave whole blocks of keys out."""
    case = Case(PREFILL_ROWS, 0, shape, dtype=dtype)
    assert case.error(Scores(scaling=shape[2] ** -0.5, sliding_window=window)) < 2 * TOLERANCES[dtype]


@pytest.mark.sampled
@pytest.mark.parametrize("block_size", [1, 4, 32])
def test_block_sizes(block_size: int) -> None:
    case = Case([(3, 1), (40, 1), (9, 6)], 2, (4, 2, 16), block_size=block_size)
    assert case.error(Scores(scaling=0.25, sliding_window=11)) < TOLERANCES[torch.float32]


@pytest.mark.sampled
@pytest.mark.parametrize("window", [None, 16])
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("with_sinks", [False, True])
def test_softcap_and_sinks(window: int | None, softcap: float | None, with_sinks: bool) -> None:
    case = Case([(3, 1), (40, 1), (9, 20)], 2, (4, 2, 16))
    sinks = torch.tensor([0.5, -1.0, 3.0, 2.0]) if with_sinks else None
    scores = Scores(scaling=0.25, sliding_window=window, softcap=softcap, sinks=sinks)
    assert case.error(scores) < TOLERANCES[torch.float32]


@pytest.mark.sampled
@pytest.mark.usefixtures("takes_decode_rows")
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_decode_token_does_not_depend_on_drafts_or_neighbours(dtype: torch.dtype) -> None:
    """Bit for bit: four query tokens of one row beside others, and the same four one by one."""
    scores = Scores(scaling=0.2, sliding_window=50)
    case = Case([(20, 1), (77, 4), (3, 1)], 3, (4, 2, 64), dtype=dtype)
    together = attend(case.query, case.layer, case.batch, scores)[1:5]
    for t in range(4):
        alone = PagedBatch(
            cache=case.batch.cache,
            num_decode_rows=1,
            query_starts=np.array([0, 1], np.int32),
            positions=np.array([77 + t], np.int32),
            block_tables=case.batch.block_tables[1:2],
            device=torch.device("cpu"),
        )
        assert torch.equal(attend(case.query[1 + t : 2 + t], case.layer, alone, scores)[0], together[t])
