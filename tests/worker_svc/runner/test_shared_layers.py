"""Layers that read the keys and values of another one have no memory of their own, and write none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from tests.worker_svc.runner.reference import make_runner
from worker_svc.core.batch import BlockCopy
from worker_svc.runner.attention.kv_cache import KVCache, LayerShape, bytes_per_block
from worker_svc.runner.attention.layer_groups import Need, with_blocks

ModelDir = Callable[[str], Path]
SLIDING, FULL = LayerShape(2, 16, 16, sees=(1, 16)), LayerShape(2, 32, 32)


def test_a_model_says_which_layers_share(model_dir: ModelDir) -> None:
    """C15. Gemma 4: each kind of its last two layers reads the last of its kind ahead of them."""
    runner = make_runner(model_dir("tiny-gemma4-shared"))
    shapes = runner.model.layer_shapes
    assert [shape.shares for shape in shapes] == [None, None, None, 1, 2]
    own = shapes[:3]
    assert bytes_per_block(shapes, 16, torch.float32) == bytes_per_block(own, 16, torch.float32)
    layers = runner._cache.layers
    assert layers[3] is layers[1] and layers[4] is layers[2] and layers[0] is not layers[1]


def test_nothing_is_shared_where_each_layer_makes_its_own(model_dir: ModelDir) -> None:
    """C15."""
    shapes = make_runner(model_dir("tiny-gemma4-moe")).model.layer_shapes
    assert [shape.shares for shape in shapes] == [None] * 3 and all(shape.elements for shape in shapes)


def test_layers_that_share_are_of_the_group_that_they_read() -> None:
    """C15, GR1: the group has the bytes of those that write alone."""
    sharing = LayerShape(2, 16, 16, sees=(1, 16), shares=0)
    layout = with_blocks([SLIDING, FULL, sharing], 1000, Need(4, 400, 16, 4000), 4)
    assert layout.of_layers == (1, 0, 1)
    (group,) = layout.groups
    assert group.bytes_per_block == SLIDING.elements * 4 * 4


def test_a_block_goes_to_the_host_tier_and_back_once_for_all_that_share_it() -> None:
    """C15."""
    shapes = [FULL, LayerShape(2, 32, 32, shares=0)]
    cache = KVCache(shapes, num_blocks=3, block_size=4, dtype=torch.float32, device=torch.device("cpu"))
    cache.add_host_tier([2])
    assert cache.host_layers[1] is cache.host_layers[0]
    cache.fill(1.0)
    cache.layers[0].keys[2] = 7.0
    cache.copy_block(BlockCopy(2, source_is_host=False, target=1, target_is_host=True))
    cache.copy_block(BlockCopy(1, source_is_host=True, target=0, target_is_host=False))
    assert cache.layers[1].keys[0].eq(7.0).all() and cache.layers[1].keys[1].eq(1.0).all()
