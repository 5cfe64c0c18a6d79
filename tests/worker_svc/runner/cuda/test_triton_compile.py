"""What the product launches compiles to machine code for GPUs that need not be here, as Triton specialises it for the
arguments of that very launch. Whether it runs is not shown."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import pytest
import torch

triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from triton.compiler.errors import CompilationError  # noqa: E402

import worker_svc.runner.triton as kernels_package  # noqa: E402
from tests.worker_svc.runner.cuda.interpreted.attention_case import Case, Heads, Row  # noqa: E402
from tests.worker_svc.runner.cuda.launches import Launch, compiling, launching  # noqa: E402
from tests.worker_svc.runner.cuda.unchecked_runner import FAMILIES, UncheckedRunner  # noqa: E402
from tests.worker_svc.runner.reference import LONGEST  # noqa: E402
from tests.worker_svc.runner.runner_harness import Driver  # noqa: E402
from worker_svc.runner.attention.kv_cache import KVCache, LayerShape  # noqa: E402
from worker_svc.runner.attention.torch_attention import Scores  # noqa: E402
from worker_svc.runner.cpu.native.kernels import Activation  # noqa: E402
from worker_svc.runner.cuda.copies.rows import (  # noqa: E402
    DEVICE,
    HOST,
    STAGE,
    PlacedRows,
    copies_between,
    move_by_kernel,
)
from worker_svc.runner.recurrent.columns import upload_columns  # noqa: E402
from worker_svc.runner.triton import attention, attention_kernels, launch, write  # noqa: E402
from worker_svc.runner.triton.states.convolution import convolve  # noqa: E402
from worker_svc.runner.triton.states.delta_rule import Decay, apply_delta_rule  # noqa: E402
from worker_svc.runner.triton.states.state_space import Space, move_space, scan_selectively  # noqa: E402
from worker_svc.runner.triton.write import TritonKernels  # noqa: E402

pytestmark = pytest.mark.skipif(
    attention.INTERPRETED, reason="kernels are interpreted in this process, not compiled"
)
ModelDir = Callable[[str], Path]
CPU = torch.device("cpu")
SMALLEST_SHARED = 99 * 1024
"""Bytes of shared memory of the smallest GPU of capability 8.0 or 9.0, or beside them."""

# -- the product's functions, with the sizes of real models --

DENSE, LATENT = Heads(28, 4, 128, 96), Heads(128, 1, 576, 512, values_in_keys=True)
"""Of Qwen 2.5, but for the values, and of DeepSeek V3."""
DECODES: list[Row] = [(600, 1), (3, 1)]
MIXED: list[Row] = [*DECODES, (0, 70), (1000, 9)]
TOKENS = 3
RUNS = upload_columns([(np.array([0, 1, TOKENS]), np.array([-1, 4]), np.array([1, 2]))], CPU)  # type: ignore[list-item]


def attend(rows: list[Row], heads: Heads, **scores: Any) -> Callable[[torch.dtype], object]:
    """Writes keys and values, and attends."""

    def call(dtype: torch.dtype) -> object:
        case = Case(rows, 2, heads, split=attention.SPLIT, dtype=dtype)
        batch = case.batch()
        key = torch.empty(len(batch.positions), heads.num_kv_heads, heads.dim, dtype=dtype)
        batch.write(case.layer, key, key[..., : heads.value_dim])
        return batch.attend_at_once(torch.cat(case.queries), case.layer, Scores(0.1, **scores))

    return call


def rope(dtype: torch.dtype) -> object:
    """With norms, and a part of each head that is not rotated."""
    shape, empty = LayerShape(4, 128, 128), torch.empty(TOKENS, 36 * 128, dtype=dtype)
    layer = KVCache([shape], num_blocks=4, block_size=16, dtype=dtype, device=CPU).layers[0]
    places, turns, norm = torch.zeros(TOKENS, dtype=torch.int64), empty[:, :96].contiguous(), empty[0, :128]
    columns = {"cosines": turns, "sines": turns, "block_ids": places, "offsets": places, "num_heads": 28}
    TritonKernels().rope_and_write(empty, layer, **columns, query_norm=norm, key_norm=norm, epsilon=1e-6)  # type: ignore[arg-type]
    return TritonKernels().rope_and_write(empty, layer, **columns)  # type: ignore[arg-type]


def norm(dtype: torch.dtype) -> object:
    """Of both kinds."""
    x = torch.empty(2, 3000, dtype=dtype)
    return [TritonKernels().rms_norm(x, x[0], 1e-6, offset, offset == 0) for offset in (0.0, 1.0)]


def gate(dtype: torch.dtype) -> object:
    """Of a width that is no power of two."""
    return TritonKernels().gate(torch.empty(2, 3000, dtype=dtype), Activation.GELU_TANH)


def convolution(dtype: torch.dtype) -> object:
    """Of Qwen3-Next."""
    conv, states = torch.nn.Conv1d(8192, 8192, 4, groups=8192).to(dtype), torch.empty(6, 8192, 4, dtype=dtype)
    return convolve(torch.empty(TOKENS, 8192, dtype=dtype), conv, states, RUNS)


def delta_rule(key_heads: int, num_biases: int) -> Callable[[torch.dtype], object]:
    """32 heads of 128 elements."""

    def call(dtype: torch.dtype) -> object:
        mixed = torch.empty(TOKENS, (2 * key_heads + 32) * 128, dtype=dtype)
        query, key, value = mixed.split([key_heads * 128, key_heads * 128, 32 * 128], dim=1)
        decays, updates = torch.empty(TOKENS, num_biases, dtype=dtype), torch.empty(TOKENS, 32, dtype=dtype)
        decay = Decay(torch.empty(32), torch.empty(num_biases))
        states = torch.empty(6, 32, 128, 128)
        return apply_delta_rule((query, key, value), decays, updates, decay, states, RUNS)

    return call


def state_space(dtype: torch.dtype) -> object:
    """Of Granite 4."""
    x, inward, steps = (torch.empty(TOKENS, width, dtype=dtype) for width in (48 * 64, 256, 48))
    space = Space(*(torch.empty(48, dtype=dtype) for _ in range(3)))
    return move_space(x, inward, inward, steps, space, torch.empty(6, 48, 64, 256), RUNS)


def selective_scan(dtype: torch.dtype) -> object:
    """Of Jamba."""
    x, inward = torch.empty(TOKENS, 8192, dtype=dtype), torch.empty(TOKENS, 16, dtype=dtype)
    space = Space(torch.empty(8192, 16, dtype=dtype), *(torch.empty(8192, dtype=dtype) for _ in range(2)))
    return scan_selectively(x, inward, inward, x, space, torch.empty(6, 8192, 16), RUNS)


def copies_of(count: int, elements: int) -> Callable[[torch.dtype], object]:
    """Blocks of so many elements, out and back."""

    def call(dtype: torch.dtype) -> object:
        tensors = [torch.empty(count + 1, elements, dtype=dtype) for _ in range(3)]
        rows, ids = PlacedRows(tensors[:1], tensors[1:2], tensors[2:]), np.arange(count)
        return [
            move_by_kernel(rows, copies_between(*places, ids))
            for places in ((DEVICE, ids, STAGE), (HOST, ids, DEVICE))
        ]

    return call


def first_launch(_: torch.dtype) -> object:
    """What a start tries first; as nothing runs here, nothing is written."""
    error = launch.launch_error.__wrapped__(CPU)
    assert error == "a kernel wrote 0 instead of 7"
    return error


CALLS: dict[str, Callable[[torch.dtype], object]] = {
    "decode": attend(DECODES, DENSE),
    "mixed": attend(
        MIXED, DENSE, softcap=30.0, sliding_window=700, sinks=torch.empty(28, dtype=torch.bfloat16)
    ),
    "chunks of positions": attend(MIXED, DENSE, chunk=512),
    "latent": attend(MIXED, LATENT),
    "rope": rope,
    "norm": norm,
    "gate": gate,
    "convolution": convolution,
    "delta rule": delta_rule(16, 32),
    "Kimi delta rule": delta_rule(32, 32 * 128),
    "state space": state_space,
    "selective scan": selective_scan,
    "copies": copies_of(40, 8 * 16 * 128),
    "copies of odd sizes": copies_of(2, 3),
    "first launch": first_launch,
}
# Those spill in float32, and take long to compile.
SLOW = ("mixed", "chunks of positions")
CASES = [
    (name, dtype)
    for name in CALLS
    for dtype in ("bfloat16", "float32")
    if dtype == "bfloat16" or name not in SLOW
]


def assert_compiled(launches: list[Launch]) -> None:
    """To machine code, for which there is room."""
    assert launches
    for made in launches:
        assert made.compiled.asm["cubin"][:4] == b"\x7fELF"
        assert made.compiled.metadata.shared <= SMALLEST_SHARED, made.name


def stack_bytes(launches: list[Launch]) -> dict[str, int]:
    """Bytes of registers that a kernel writes to memory for want of room, by its name."""
    found = {}
    for made in launches:
        with NamedTemporaryFile() as file:
            file.write(made.compiled.asm["cubin"])
            file.flush()
            command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
            usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found[made.name] = max(map(int, re.findall(r"STACK:(\d+)", usage)))
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_calls_of_real_sizes_compile(name: str, capability: int, dtype: str) -> None:
    """Without spilling registers; in float32, which serves tests, the kernels of prompts do."""
    with compiling(capability) as launches:
        CALLS[name](getattr(torch, dtype))
    assert_compiled(launches)
    assert set(stack_bytes(launches).values()) == {0}


@pytest.mark.slow
def test_planted_tiles_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "CHUNK_TILE", 128)
    with compiling() as launches:
        CALLS["mixed"](torch.bfloat16)
    assert stack_bytes(launches)["attend_kernel"] > 0


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


def test_all_kernels_that_are_launched_are_among_the_calls() -> None:
    """The smallest kernel was not, and did not compile: on the first GPU Triton was off as a whole."""
    names = set[str]()
    with launching(lambda kernel, *_, **__: names.add(kernel.fn.__name__)):
        for call in CALLS.values():
            call(torch.bfloat16)
    assert names == launched_kernels()


# -- whole models --


def make_driver(path: Path, max_model_len: int) -> Driver:
    """A runner and requests for it."""
    runner = UncheckedRunner(
        path,
        served_model_name="tiny",
        num_slots=80,
        attention="triton",
        dtype="bfloat16",
        num_blocks=400,
        block_size=16,
        max_model_len=max_model_len,
        threads=1,
    )
    return Driver(runner, num_slots=80)


def serve(driver: Driver, num_rows: int, num_tokens: int, chunk: int) -> None:
    """Runs prompts in chunks, decode steps of them, and a step with another prompt beside them."""
    requests = [driver.add([5] * num_tokens, 3) for _ in range(num_rows)]
    for first in range(0, num_tokens, chunk):
        driver.step({request.slot: min(chunk, num_tokens - first) for request in requests})
    driver.step({})
    beside = driver.add([5] * 5, 2)
    driver.step({beside.slot: 5})
    driver.requests = []


@pytest.mark.sampled
@pytest.mark.parametrize("preset", FAMILIES)
def test_steps_of_every_family_compile(preset: str, model_dir: ModelDir) -> None:
    with compiling() as launches:
        serve(make_driver(model_dir(preset), LONGEST.get(preset, 128)), 2, 40, 30)
    assert "attend_kernel" in {made.name for made in launches}
    assert_compiled(launches)


# -- no more kernels than are known beforehand --

WALK = [(1, 1, 1), (1, 5, 5), (2, 9, 9), (1, 70, 70), (1, 900, 300), (1, 220, 200), (16, 3, 3), (33, 3, 3)]
"""Numbers of rows, tokens and tokens of a chunk, among them single ones, and tables that are 16 blocks wide."""
VARIANTS = {
    "tiny-qwen3": {"attend_kernel": 3},
    "tiny-gpt-oss": {"attend_kernel": 6, "join_kernel": 2},
    "hybrid-granite": {"attend_kernel": 3},
}
"""Kernels that a model needs, 1 where nothing is said. Attention has one for decode steps, and two for chunks, with and
without split contexts beside them: for layers with windows as many again."""


def variants(path: Path) -> dict[str, int]:
    """How many kernels of each name the steps of the walk need, in which only numbers of rows and tokens differ."""
    hashes = defaultdict[str, set[str]](set)
    with compiling() as launches:
        driver = make_driver(path, 1024)
        launches.clear()  # of modules that are tried when the model is loaded
        for rows, tokens, chunk in WALK:
            serve(driver, rows, tokens, chunk)
    for made in launches:
        hashes[made.name].add(made.compiled.hash)
    return {name: len(found) for name, found in hashes.items()}


@pytest.fixture
def long_model_dir(model_dir: ModelDir, tmp_path: Path) -> ModelDir:
    """As `model_dir`, of models with room for split contexts."""

    def get(preset: str) -> Path:
        path = Path(shutil.copytree(model_dir(preset), tmp_path / preset))
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 1024}))
        return path

    return get


@pytest.mark.parametrize("preset", VARIANTS)
def test_kernels_do_not_depend_on_the_batch(preset: str, long_model_dir: ModelDir) -> None:
    """Each further one is compiled while requests wait for it: the width of block tables made some."""
    found = variants(long_model_dir(preset))
    assert found == {name: VARIANTS[preset].get(name, 1) for name in found}


def test_kernels_do_not_depend_on_how_much_is_copied() -> None:
    """TR12: what the start has compiled is all that serving needs."""
    with compiling() as launches:
        for count in (1, 2, 16, 33, 400):
            copies_of(count, 96)(torch.bfloat16)
            copies_of(count, 6)(torch.bfloat16)
    assert {made.name for made in launches} == {"copy_kernel"}
    assert len({made.compiled.hash for made in launches}) == 2, "by 8 bytes and by 4"


# -- planted --


@triton.jit  # type: ignore[untyped-decorator]
def annotated(to: Any, value: Any) -> None:
    """The smallest kernel as it was on the first GPU."""
    tl.store(to, value)


class Altered:
    """A kernel some of whose arguments are others."""

    def __init__(self, kernel: Any, alter: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]) -> None:
        self._kernel, self._alter = kernel, alter

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., object]:
        def call(*args: Any, **options: Any) -> object:
            args, options = self._alter(grid, args, options)
            return self._kernel[grid](*args, **options)

        return call


def test_planted_annotations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault of the first GPU."""
    monkeypatch.setattr(launch, "write_one", annotated)
    with compiling(), pytest.raises(AssertionError, match="Cannot access global variable Any"):
        CALLS["first launch"](torch.bfloat16)


def test_planted_none_instead_of_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Altered(write.norm_kernel, lambda _, args, options: ((args[0], None, *args[2:]), options))
    monkeypatch.setattr(write, "norm_kernel", planted)
    with compiling(), pytest.raises(CompilationError, match="norm_kernel"):
        CALLS["norm"](torch.bfloat16)


def test_planted_constant_of_the_batch(long_model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_rows(grid: tuple[int, ...], args: Any, options: dict[str, Any]) -> Any:
        return args, options | {"BLOCK": 64 if grid[0] > 16 else options["BLOCK"]}

    monkeypatch.setattr(write, "gate_kernel", Altered(write.gate_kernel, by_rows))
    assert variants(long_model_dir("tiny-qwen3"))["gate_kernel"] == 2


@pytest.fixture
def specialised_widths(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Attention as it was: Triton makes other kernels of tables as wide as a multiple of 16."""
    kernel = attention_kernels.attend_kernel
    (width,) = (param for param in kernel.params if param.name == "table_width")
    monkeypatch.setattr(width, "do_not_specialize", False)
    monkeypatch.setattr(kernel, "device_caches", defaultdict(kernel.create_binder))
    yield


@pytest.mark.usefixtures("specialised_widths")
def test_planted_kernels_for_widths_of_tables(long_model_dir: ModelDir) -> None:
    assert variants(long_model_dir("tiny-qwen3"))["attend_kernel"] > VARIANTS["tiny-qwen3"]["attend_kernel"]
