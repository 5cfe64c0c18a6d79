"""The native recurrent layers against transformers' own code, and what their results do not depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.worker_svc.runner.cpu.state_layers import (
    CONVOLUTIONS,
    DELTA_NETS,
    KIMI,
    SCANS,
    STATE_SPACES,
    Shape,
    make_layer,
    make_native,
    make_rows,
    random_hidden,
    with_products_by_rows,
)
from worker_svc.core.requests.state_versions import NOTHING
from worker_svc.runner.cpu.fused import NotFusableError
from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.packed_linear import relative_error
from worker_svc.runner.cpu.recurrent import (
    delta_net,
    kimi_delta,
    selective_scan,
    short_convolution,
    state_space,
)
from worker_svc.runner.cpu.recurrent.native_layer import NativeLayer
from worker_svc.runner.recurrent.layers import RecurrentForward
from worker_svc.runner.recurrent.rows import StateRows

GARBAGE = 1e4
TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 1e-2}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCES)
NET_SHAPES = [
    Shape(2, 4, 8, 16, 4),
    Shape(2, 2, 128, 128, 4),
    Shape(1, 3, 24, 80, 3),
    Shape(2, 2, 40, 48, 2),
]
"""Keys that fill no vector, values that fill no group of vectors, and all lengths of convolutions."""
SPACE_SHAPES = [
    Shape(2, 8, 16, 16, 4),
    Shape(1, 4, 128, 64, 4),
    Shape(2, 8, 64, 24, 3),
    Shape(4, 4, 32, 48, 2),
    Shape(1, 8, 256, 40, 4),
]
"""States of all sizes, heads that no group of rows fills, and channels that fill no vector."""
CONVOLUTION_SHAPES = [Shape(0, 1, 0, 64, 3), Shape(0, 2, 0, 75, 4), Shape(0, 1, 0, 300, 2)]
"""Channels that are less and more than a task's, and that fill no vector; with a bias and without."""
KIMI_SHAPES = [
    Shape(4, 4, 16, 16, 4),
    Shape(2, 2, 128, 128, 4),
    Shape(3, 3, 80, 80, 3),
    Shape(1, 1, 48, 48, 2),
]
SCAN_SHAPES = [Shape(4, 1, 16, 64, 4), Shape(5, 2, 16, 24, 3), Shape(16, 1, 16, 200, 2)]
"""Ranks that fill no vector, channels of one task and of many; with a bias of the convolution and without."""
CASES = [
    *((family, shape) for family in DELTA_NETS for shape in NET_SHAPES),
    *((family, shape) for family in STATE_SPACES for shape in SPACE_SHAPES),
    *((family, shape) for family in CONVOLUTIONS for shape in CONVOLUTION_SHAPES),
    *((family, shape) for family in KIMI for shape in KIMI_SHAPES),
    *((family, shape) for family in SCANS for shape in SCAN_SHAPES),
]

MIXED = ([1, 1, 70, 0, 33, 1, 2], [0, NOTHING, NOTHING, 4, 5, 6, 8], [1, 3, 10, 11, 12, 7, 9])
"""Rows that go on and rows that begin, of one token, of some, of more than are scanned at a time, and of none."""


@torch.inference_mode()
@DTYPES
@pytest.mark.parametrize(("family", "shape"), CASES, ids=str)
def test_rows_are_those_of_transformers(
    kernels: Kernels, family: str, shape: Shape, dtype: torch.dtype
) -> None:
    """SG9. Outputs and all states; those of no target stay as they were."""
    if family == "qwen3-next" and shape.value_heads % shape.key_heads:
        pytest.skip("it has no such heads")
    layer = make_layer(family, shape, dtype)
    expected, ours = (make_rows(layer, *MIXED) for _ in range(2))
    hidden = random_hidden(layer, sum(MIXED[0]))
    native = make_native(layer, kernels)
    results = zip(
        (layer.forward.run(hidden, expected), *expected.store.layers[0]),
        (native.run(hidden, ours), *ours.store.layers[0]),
        strict=True,
    )
    for wanted, actual in results:
        assert relative_error(actual, wanted) <= TOLERANCES[dtype]
    untouched = np.setdiff1d(np.arange(len(ours.store.layers[0][0])), [1, 3, 10, 12, 7, 9])
    for wanted, actual in zip(expected.store.layers[0], ours.store.layers[0], strict=True):
        assert torch.equal(actual[untouched], wanted[untouched])


CUT = [
    ("qwen3.5", Shape(2, 4, 24, 80, 4)),
    ("bamba", Shape(2, 8, 64, 24, 4)),
    ("falcon", Shape(2, 8, 64, 24, 4)),
    ("lfm2", Shape(0, 1, 0, 300, 3)),
    ("kimi", Shape(2, 2, 80, 80, 4)),
    ("jamba", Shape(5, 2, 16, 24, 4)),
]


@pytest.fixture(params=CUT, ids=str)
def native(kernels: Kernels, request: pytest.FixtureRequest) -> tuple[Any, NativeLayer]:
    """A layer as transformers has it, and ours for it."""
    family, shape = request.param
    with torch.inference_mode():
        layer = make_layer(family, shape, torch.bfloat16)
        return layer, with_products_by_rows(make_native(layer, kernels))


@torch.inference_mode()
@pytest.mark.parametrize("cuts", [[69], [1, 68], [31, 1, 1, 36], [1] * 69])
def test_a_sequence_is_the_same_bit_for_bit_wherever_it_is_cut(
    native: tuple[Any, NativeLayer], cuts: list[int]
) -> None:
    """SG9. The states that decoding makes are those of a prompt."""
    layer, ours = native
    projected = ours.in_proj(random_hidden(layer, 70)[0])
    whole = make_rows(layer, [70], [NOTHING], [1])
    expected = ours.mix(projected, whole)
    store = make_rows(layer, [70], [NOTHING], [1]).store
    outputs, source, start = [], NOTHING, 0
    for number, length in enumerate([1, *cuts]):
        target = number % 2
        rows = StateRows(store, *(np.array(each, np.int32) for each in ([0, length], [source], [target])))
        outputs.append(ours.mix(projected[start : start + length].contiguous(), rows))
        source, start = target, start + length
    assert torch.equal(torch.cat(outputs), expected)
    for part, wanted in zip(store.layers[0], whole.store.layers[0], strict=True):
        assert torch.equal(part[source], wanted[1])


@torch.inference_mode()
@pytest.mark.parametrize("threads", [1, 3])
def test_a_row_does_not_depend_on_the_others(native: tuple[Any, NativeLayer], threads: int) -> None:
    """SG9. Bit for bit, on any number of threads."""
    layer, ours = native
    lengths, sources, targets = MIXED
    projected = ours.in_proj(random_hidden(layer, sum(lengths))[0])
    together = make_rows(layer, *MIXED)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        outputs = torch.split(ours.mix(projected, together), lengths)
    finally:
        torch.set_num_threads(before)
    for number, part in enumerate(torch.split(projected, lengths)):
        alone = make_rows(layer, *MIXED).store
        one = slice(number, number + 1)
        columns = ([0, lengths[number]], sources[one], targets[one])
        rows = StateRows(alone, *(np.array(each, np.int32) for each in columns))
        assert torch.equal(ours.mix(part.contiguous(), rows), outputs[number])
        for mine, theirs in zip(alone.layers[0], together.store.layers[0], strict=True):
            assert torch.equal(mine[targets[number]], theirs[targets[number]]) or not lengths[number]


@torch.inference_mode()
def test_a_row_that_begins_reads_no_state(native: tuple[Any, NativeLayer]) -> None:
    """SG4. Whatever lies where it writes."""
    layer, ours = native
    hidden = random_hidden(layer, 40)
    results = []
    for garbage in (0.0, GARBAGE):
        rows = make_rows(layer, [1, 39], [NOTHING, NOTHING], [1, 2])
        rows.store.fill(garbage)
        results.append((ours.run(hidden, rows), *(part[[1, 2]] for part in rows.store.layers[0])))
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@torch.inference_mode()
@pytest.mark.parametrize("fault", ["update_scale", "epsilon", "key_dim"])
def test_a_delta_net_that_gives_something_else_is_not_taken(
    kernels: Kernels, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SG9. The layer stays as it was."""
    layer = make_layer("qwen3.5", Shape(2, 2, 32, 32, 4), torch.float32)
    make = delta_net.make_call

    def wrong(layer: Any, parts: Any) -> Any:
        call, tensors = make(layer, parts)
        setattr(call, fault, {"update_scale": 1.01, "epsilon": 1e-2, "key_dim": 16}[fault])
        return call, tensors

    monkeypatch.setattr(delta_net, "make_call", wrong)
    with pytest.raises(NotFusableError, match="delta net gives other results"):
        make_native(layer, kernels)
    assert isinstance(layer.forward, RecurrentForward) and layer.in_proj_qkv.weight is not None


@torch.inference_mode()
@pytest.mark.parametrize(
    ("family", "fault"),
    [
        *(("bamba", fault) for fault in ("least_step", "epsilon", "norm_dim", "num_groups", "norms_first")),
        ("falcon", "scales"),
        ("falcon, normed ahead of the gate", "norms_first"),
        ("falcon, normed ahead of the gate", "norm_weight"),
    ],
)
def test_a_state_space_that_gives_something_else_is_not_taken(
    kernels: Kernels, family: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SG9."""
    layer = make_layer(family, Shape(2, 4, 32, 32, 4), torch.float32)
    make = state_space.make_call

    def wrong(layer: Any) -> Any:
        call, tensors = make(layer)
        others = {"least_step": 2.0, "epsilon": 1e-2, "norm_dim": 32, "num_groups": 1}
        setattr(call, fault, others.get(fault, 0 if family != "bamba" else 1))
        return call, tensors

    monkeypatch.setattr(state_space, "make_call", wrong)
    with pytest.raises(NotFusableError, match="state space gives other results"):
        make_native(layer, kernels)
    assert isinstance(layer.forward, RecurrentForward) and layer.in_proj.weight is not None


@torch.inference_mode()
@pytest.mark.parametrize(
    ("module", "family", "shape", "fault", "value"),
    [
        (short_convolution, "lfm2", CONVOLUTION_SHAPES[1], "bias", None),
        (short_convolution, "lfm2", CONVOLUTION_SHAPES[1], "is_gated", 0),
        (kimi_delta, "kimi", KIMI_SHAPES[0], "update_scale", 1.01),
        (kimi_delta, "kimi", KIMI_SHAPES[0], "epsilon", 1e-2),
        (kimi_delta, "kimi", KIMI_SHAPES[0], "width", 1),
        (selective_scan, "jamba", SCAN_SHAPES[0], "in_epsilon", 1e-1),
        (selective_scan, "jamba", SCAN_SHAPES[0], "out_epsilon", 1e-1),
        (selective_scan, "jamba", SCAN_SHAPES[0], "parts_width", 32),
    ],
    ids=str,
)
def test_another_layer_that_gives_something_else_is_not_taken(
    kernels: Kernels,
    module: Any,
    family: str,
    shape: Shape,
    fault: str,
    value: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SG9."""
    layer = make_layer(family, shape, torch.float32)
    make = module.make_call

    def wrong(*parts: Any, **settings: Any) -> Any:
        call, tensors = make(*parts, **settings)
        setattr(call, fault, value)
        return call, tensors

    monkeypatch.setattr(module, "make_call", wrong)
    with pytest.raises(NotFusableError, match="gives other results"):
        make_native(layer, kernels)
    assert isinstance(layer.forward, RecurrentForward)
    assert all(linear.weight is not None for linear in layer.modules() if isinstance(linear, torch.nn.Linear))


@torch.inference_mode()
@pytest.mark.parametrize(
    ("family", "shape"),
    [
        ("qwen3.5", Shape(2, 2, 16, 24, 4)),
        ("qwen3.5", Shape(2, 2, 16, 16, 5)),
        ("bamba", Shape(2, 4, 48, 16, 4)),
        ("bamba", Shape(2, 4, 32, 16, 5)),
        ("granite", Shape(8, 8, 32, 8, 4)),
        ("lfm2", Shape(0, 1, 0, 64, 5)),
        ("kimi", Shape(2, 2, 24, 24, 4)),
        ("kimi", Shape(2, 2, 16, 16, 5)),
        ("jamba", Shape(4, 1, 8, 64, 4)),
        ("jamba", Shape(4, 1, 16, 60, 4)),
        ("jamba", Shape(4, 1, 16, 64, 5)),
    ],
    ids=str,
)
def test_shapes_that_the_kernel_does_not_take_are_told(kernels: Kernels, family: str, shape: Shape) -> None:
    """SG9."""
    with pytest.raises(NotFusableError, match=r"that the kernel (takes|knows)"):
        make_native(make_layer(family, shape, torch.float32), kernels)


@torch.inference_mode()
def test_steps_that_are_bounded_above_are_told(kernels: Kernels) -> None:
    """SG9."""
    layer = make_layer("bamba", SPACE_SHAPES[0], torch.float32)
    layer.time_step_limit = (0.0, 0.1)
    with pytest.raises(NotFusableError, match=r"bounds its steps by 0\.1"):
        make_native(layer, kernels)
