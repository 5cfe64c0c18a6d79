"""All Triton kernels compile to machine code for GPUs that need not be here. Whether they run is not shown.

What was compiled is kept between runs, by Triton's own key: sources, constants, options, target and versions."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

import worker_svc.runner.triton as kernels_package  # noqa: E402
from tests.downloads import CACHE  # noqa: E402
from worker_svc.runner.triton import attention, attention_kernels, launch, write  # noqa: E402
from worker_svc.runner.triton.states import convolution, delta_rule, state_space  # noqa: E402

pytestmark = pytest.mark.skipif(
    attention.INTERPRETED, reason="kernels are interpreted in this process, not compiled"
)
HEADS = {"NUM_HEADS": 28, "GROUP": 7}
DIMS = {"D": 128, "DV": 96, "PAD_D": 128, "PAD_DV": 128}
TILES = {"CHUNK_TILE": 64, "DECODE_TILE": 16, "KEYS": 32, "SPLIT": 512, "BLOCK_SIZE": 16, "WIDEN": False}
DENSE = {"LATENT": False}
PLAIN = {"HAS_CAP": False, "SEES": 0, "HAS_SINKS": False}
ALL = {"HAS_CAP": True, "SEES": 1, "HAS_SINKS": True}
ATTEND = {**HEADS, **DIMS, **TILES, **DENSE}
LATENT = {
    "NUM_HEADS": 128,
    "GROUP": 16,
    "D": 576,
    "DV": 512,
    "PAD_D": 64,
    "PAD_DV": 512,
    "KEYS": 16,
    "CHUNK_TILE": 16,
    "LATENT": True,
}
"""Of DeepSeek V3."""
FLOATS = {"scale", "softcap", "epsilon", "weight_offset", "update_scale", "least_step", "most_step"}
TYPED = {
    **dict.fromkeys(("part_acc", "part_sums", "states"), "*fp32"),
    **dict.fromkeys(("items", "positions", "tables"), "*i32"),
    **dict.fromkeys(("query_starts", "sources", "targets", "token_rows", "place"), "*i32"),
}
POINTERS = {
    **dict.fromkeys(
        ("out", "query", "keys", "values", "sinks", "key", "value", "x", "weight", "gate_up", "qkv")
    ),
    **dict.fromkeys(("cosines", "sines", "query_norm", "key_norm")),
    **dict.fromkeys(("inputs", "bias", "stored", "decays", "updates", "rates", "biases")),
    **dict.fromkeys(("inward", "outward", "steps", "skips")),
}
DELTA = {"NUM_HEADS": 32, "GROUP": 2, "DK": 128, "DV": 128, "PAD_DK": 128, "BLOCK_DV": 32}
"""Of Qwen3-Next."""
KERNELS: dict[str, tuple[Any, dict[str, Any], int]] = {
    "decode": (
        attention_kernels.attend_kernel,
        ATTEND | PLAIN | {"HAS_CHUNKS": False, "PARTIAL": True},
        4,
    ),
    "mixed": (
        attention_kernels.attend_kernel,
        ATTEND | ALL | {"HAS_CHUNKS": True, "PARTIAL": True},
        4,
    ),
    "chunks of positions": (
        attention_kernels.attend_kernel,
        ATTEND | PLAIN | {"SEES": 2, "HAS_CHUNKS": True, "PARTIAL": True},
        4,
    ),
    "latent": (
        attention_kernels.attend_kernel,
        ATTEND | PLAIN | LATENT | {"HAS_CHUNKS": True, "PARTIAL": True},
        4,
    ),
    "join": (
        attention_kernels.join_kernel,
        {"NUM_HEADS": 28, "DV": 96, "PAD_DV": 128, "SPLIT": 512, "SEES": 1, "HAS_SINKS": True},
        1,
    ),
    "write": (write.write_kernel, {"HEADS": 4, "BLOCK_SIZE": 16, "LATENT": False, **DIMS}, 1),
    "rope": (
        write.rope_kernel,
        {"HEADS": 28, "KV_HEADS": 4, "BLOCK_SIZE": 16, "D": 128, "HALF": 48, "PAD_HALF": 64}
        | {"REST": 32, "PAD_REST": 32, "HAS_NORMS": True, "ROUNDS": True},
        1,
    ),
    "norm": (write.norm_kernel, {"D": 3000, "PAD_D": 4096, "ROUNDS": True}, 4),
    "convolution": (
        convolution.convolve_kernel,
        {"NUM_CHANNELS": 8192, "KERNEL": 4, "KEPT": 4, "BLOCK": 256, "HAS_BIAS": True, "HAS_SILU": True},
        4,
    ),
    "delta rule": (delta_rule.delta_kernel, DELTA | {"PER_CHANNEL": False}, 4),
    "Kimi delta rule": (delta_rule.delta_kernel, DELTA | {"GROUP": 1, "PER_CHANNEL": True}, 4),
    "state space": (
        state_space.space_kernel,
        {"NUM_HEADS": 48, "GROUP": 48, "P": 64, "N": 256, "BLOCK_P": 32, "PAD_N": 256},
        4,
    ),
    "selective scan": (
        state_space.scan_kernel,
        {"NUM_CHANNELS": 8192, "N": 16, "BLOCK": 32, "PAD_N": 16},
        4,
    ),
    "gate": (write.gate_kernel, {"WIDTH": 1500, "IS_GELU": True, "BLOCK": 1024}, 4),
    "launch": (launch.write_one, {}, 4),
}


def type_of(name: str, dtype: str) -> str:
    """The type of a kernel's argument."""
    if name in FLOATS:
        return "fp32"
    if name in ("block_ids", "offsets"):
        return "*i64"
    return TYPED.get(name, f"*{dtype}" if name in POINTERS else "i32")


def launched_kernels() -> set[str]:
    """Names of all functions that product code launches, by their sources: `kernel[grid](...)`."""
    names = set[str]()
    for path in Path(kernels_package.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Subscript(value=ast.Name(name) | ast.Attribute(attr=name), slice=ast.Tuple())
                ):
                    names.add(name)
    return names


def test_all_kernels_that_are_launched_are_compiled_here() -> None:
    """The smallest kernel was not, and did not compile: on the first GPU Triton was off as a whole."""
    assert launched_kernels() == {kernel.fn.__name__ for kernel, _, _ in KERNELS.values()}


# Those take half a minute to compile in float32.
SLOW = ("mixed", "chunks of positions")
CASES = [
    (name, dtype) for name in KERNELS for dtype in ("bf16", "fp32") if dtype == "bf16" or name not in SLOW
]


@pytest.mark.sampled
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_compiles(name: str, capability: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(CACHE / "triton"))
    kernel, constants, num_warps = KERNELS[name]
    signature = {n: "constexpr" if n in constants else type_of(n, dtype) for n in kernel.arg_names}
    places = {(kernel.arg_names.index(n),): value for n, value in constants.items()}
    compiled = triton.compile(
        ASTSource(kernel, signature, places, {}),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": num_warps, "num_stages": 2},
    )
    assert compiled.asm["cubin"][:4] == b"\x7fELF"
    assert compiled.metadata.shared <= 99 * 1024, "shared memory of the smallest of these GPUs"
