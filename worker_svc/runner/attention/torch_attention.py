"""Paged attention in plain torch, row by row, on any device: the reference, and the way of prefill chunks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812

from worker_svc.runner.attention.kv_cache import LayerCache

QUERY_TILE = 256
"""Queries handled at once, which bounds the mask. Tiles end at multiples of it in the sequence."""


@dataclass(frozen=True)
class Scores:
    """How a layer turns query-key products into weights."""

    scaling: float
    sliding_window: int | None = None
    """Positions a query attends to, its own among them; None for all."""
    softcap: float | None = None
    """Scores become `softcap * tanh(score / softcap)` (Gemma 2)."""
    sinks: torch.Tensor | None = None
    """[Hq] scores of a position without value (gpt-oss)."""
    chunk: int | None = None
    """A query looks only at positions of its own chunk of so many (Llama 4); None: there are none."""

    @property
    def is_plain(self) -> bool:
        return self.softcap is None and self.sinks is None


@dataclass(frozen=True)
class TileRange:
    """Half-open ranges of one tile: queries at `[first, end)` look at keys `[start, end)`."""

    start: int
    first: int
    end: int


class MaskCache:
    """Masks of one forward; all layers of a kind share them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._masks: dict[tuple[TileRange, int | None, int], torch.Tensor] = {}

    def get(self, tile_range: TileRange, window: int | None, group: int) -> torch.Tensor:
        """[group * queries, keys] true where a query may look; the queries of one head lie together."""
        key = (tile_range, window, group)
        if key not in self._masks:
            self._masks[key] = make_mask(tile_range, window, self._device).repeat(group, 1)
        return self._masks[key]


def make_mask(tile_range: TileRange, window: int | None, device: torch.device) -> torch.Tensor:
    """[queries, keys] causal mask, with a sliding window if there is one."""
    queries = torch.arange(tile_range.first, tile_range.end, device=device)[:, None]
    keys = torch.arange(tile_range.start, tile_range.end, device=device)[None]
    mask = keys <= queries
    return mask if window is None else mask & (keys > queries - window)


def attend_row(
    query: torch.Tensor,
    layer: LayerCache,
    block_table: torch.Tensor,
    *,
    first_position: int,
    scores: Scores,
    masks: MaskCache,
) -> torch.Tensor:
    """Attention of one row's query tokens `[C, Hq, D]`, `first_position` and on. Returns `[C, Hq, Dv]`."""
    tiles = []
    start, end = first_position, first_position + query.shape[0]
    while start < end:
        tile_end = min(end, (start // QUERY_TILE + 1) * QUERY_TILE)
        tile_range = TileRange(_first_key(start, scores.sliding_window, layer.keys.shape[2]), start, tile_end)
        keys, values = gather(layer, block_table, tile_range)
        tile = query[start - first_position : tile_end - first_position]
        tiles.append(attend_tile(tile, keys, values, tile_range=tile_range, scores=scores, masks=masks))
        start = tile_end
    return tiles[0] if len(tiles) == 1 else torch.cat(tiles)


def _first_key(position: int, window: int | None, block_size: int) -> int:
    """First position of the first block that a query at `position` looks into."""
    return 0 if window is None else max(0, position - window + 1) // block_size * block_size


def gather(
    layer: LayerCache, block_table: torch.Tensor, tile_range: TileRange
) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V of the positions `[tile_range.start, tile_range.end)`, `[Hkv, keys, D]`. A block begins at the start."""
    block_size = layer.keys.shape[2]
    blocks = block_table[tile_range.start // block_size : -(-tile_range.end // block_size)]
    count = tile_range.end - tile_range.start

    def flatten(cache: torch.Tensor) -> torch.Tensor:
        chosen = cache[blocks].transpose(0, 1)
        return chosen.reshape(chosen.shape[0], -1, chosen.shape[3])[:, :count]

    return flatten(layer.keys), flatten(layer.values)


def attend_tile(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    tile_range: TileRange,
    scores: Scores,
    masks: MaskCache,
) -> torch.Tensor:
    """Attention of `[C, Hq, D]` queries over `[Hkv, L, D]` keys. Returns `[C, Hq, Dv]`.

    The query heads of a KV head are folded into the rows: `enable_gqa` is several times slower on a CPU.
    """
    num_queries, num_heads, dim = query.shape
    group = num_heads // keys.shape[0]
    folded = query.transpose(0, 1).reshape(keys.shape[0], group * num_queries, dim)
    mask = masks.get(tile_range, scores.sliding_window, group)
    if scores.is_plain:
        out = F.scaled_dot_product_attention(
            folded[None], keys[None], values[None], attn_mask=mask, scale=scores.scaling
        )[0]
    else:
        out = attend_explicitly(folded, keys, values, mask, scores)
    return out.reshape(num_heads, num_queries, -1).transpose(0, 1)


def attend_explicitly(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, scores: Scores
) -> torch.Tensor:
    """Attention of a tile with capped scores or sinks. `query` is `[Hkv, group * C, D]`, `mask` `[group * C, L]`."""
    products = query.float() @ keys.float().transpose(1, 2) * scores.scaling
    if scores.softcap is not None:
        products = scores.softcap * torch.tanh(products / scores.softcap)
    products = products.masked_fill(~mask, -torch.inf)
    if scores.sinks is not None:
        per_head = scores.sinks.float().reshape(keys.shape[0], -1)
        sinks = per_head.repeat_interleave(query.shape[1] // per_head.shape[1], dim=1)[..., None]
        weights = torch.cat([products, sinks], dim=-1).softmax(-1)[..., :-1]
    else:
        weights = products.softmax(-1)
    return (weights @ values.float()).to(query.dtype)
