"""What a warm-up compiles is all that serving needs, by the keys that Triton's own JIT gives to the product's launches.
Kernels are neither compiled nor run."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

pytest.importorskip("triton")

from tests.pairs import in_soak
from tests.worker_svc.runner.cuda.copies.scenario import make_cache, make_store
from tests.worker_svc.runner.cuda.recorded_variants import recorded_variants
from tests.worker_svc.runner.cuda.test_triton_compile import launched_kernels
from tests.worker_svc.runner.cuda.unchecked_runner import FAMILIES, UncheckedRunner
from tests.worker_svc.runner.runner_harness import GREEDY, Driver
from worker_svc.core.batch import BlockCopy
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.runner.cuda.copies.blocks import DeviceBlocks
from worker_svc.runner.cuda.copies.copier import BlockCopier
from worker_svc.runner.cuda.copies.order import HostOrder
from worker_svc.runner.cuda.copies.rows import move_by_kernel
from worker_svc.runner.cuda.runner import CudaRunner
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.triton import attention
from worker_svc.runner.triton.attention_kernels import attend_kernel
from worker_svc.runner.warming.plan import WarmStep, plan_steps
from worker_svc.runner.warming.warm_up import limits_of, run_others, run_step

pytestmark = pytest.mark.skipif(
    attention.INTERPRETED, reason="kernels are interpreted in this process, not compiled"
)
ModelDir = Callable[[str], Path]
COVERING = ("tiny-qwen3", "tiny-gpt-oss", "hybrid-qwen3-next", "hybrid-granite", "hybrid-jamba")
"""Together they launch all kernels."""
SHORT_ONLY = ("tiny-deepseek-v32", "tiny-glm-moe-dsa", "tiny-gpt2")
"""They cannot be served with contexts of several splits."""
OTHERS = (preset for preset in FAMILIES if preset not in (*COVERING, *SHORT_ONLY))
MOST_POSITIONS, MOST_TOKENS, NUM_SLOTS = 1024, 700, 10
SHORT, LONG = (1, 2, 3, 15, 16, 17, 40, 65, 300), (509, 512, 656)
"""Lengths of prompts: the long ones pass a split. The tables of the longest are of a width that is a multiple of 16."""
PARAMS = (
    GREEDY,
    SamplingParams(top_p=0.9),
    SamplingParams(num_logprobs=2),
    SamplingParams(repetition_penalty=1.2),
)
NUM_STEPS = 40
Variants = set[str]


def make(path: Path) -> CudaRunner:
    """With room for contexts of several splits."""
    config = json.loads((path / "config.json").read_text())
    longer = dict.fromkeys(("max_position_embeddings", "model_max_length"), MOST_POSITIONS)
    path = Path(shutil.copytree(path, path.parent / f"{path.name}-longer", dirs_exist_ok=True))
    (path / "config.json").write_text(json.dumps(config | longer))
    settings: dict[str, Any] = {
        "num_slots": NUM_SLOTS,
        "num_blocks": 1000,
        "num_host_blocks": 4,
        "block_size": 4,
    }
    # What is copied to prove that it arrives does not: no kernel runs.
    with recorded_variants(), patch.object(BlockCopier, "prove", lambda *_: None):
        return UncheckedRunner(
            path,
            served_model_name="tiny",
            attention="triton",
            dtype="bfloat16",
            max_model_len=MOST_POSITIONS,
            threads=1,
            **settings,
        )


@pytest.fixture(scope="module")
def runner_of(model_dir: ModelDir) -> Callable[[str], CudaRunner]:
    return cache(lambda preset: make(model_dir(preset)))


def steps_of(runner: CudaRunner) -> list[WarmStep]:
    return plan_steps(limits_of(runner, MOST_TOKENS))


def warmed(runner: CudaRunner, steps: list[WarmStep]) -> Variants:
    with recorded_variants() as variants:
        for step in steps:
            run_step(runner, None, step)
        with contextlib.suppress(ModelLoadError):  # what the check of the model computes is garbage
            run_others(runner)
    return variants


def served(runner: CudaRunner) -> Variants:
    """Of random steps: prompts whole and in chunks, beside rows that decode, first of short contexts and then of long
    ones, some with drafts; tokens chosen on the device and on the host."""
    random, driver = np.random.default_rng(0), Driver(runner, num_slots=NUM_SLOTS)
    with recorded_variants() as variants:
        for number in range(NUM_STEPS):
            if len(driver.requests) < NUM_SLOTS and number % 4 == 0:
                lengths = SHORT if number < NUM_STEPS // 2 else LONG
                driver.add([5] * int(random.choice(lengths)), NUM_STEPS, PARAMS[number // 4 % len(PARAMS)])
            run_random(driver, number, random)
        with contextlib.suppress(ArithmeticError):  # what it computes is garbage
            runner.check()
    return variants


def run_random(driver: Driver, number: int, random: np.random.Generator) -> None:
    """A step of the rows that decode, now and then with drafts, and, but in every third, of prompts or their parts."""
    decoding = [request for request in driver.requests if request.is_decoding]
    waiting = [request for request in driver.requests if not request.is_decoding]
    if number % 5 == 4 and driver.runner._states is None:
        for request in decoding:
            request.drafts = [7, 8]
    chunks = {}
    for request in waiting if number % 3 else ():
        rest = len(request.tokens) - request.num_computed
        chunks[request.slot] = min(rest, MOST_TOKENS // 3, int(random.integers(1, 2 * rest + 1)))
    if chunks or decoding:
        driver.step(chunks)


@pytest.mark.parametrize("preset", [*COVERING, *in_soak(*OTHERS)])
def test_serving_needs_no_variant_that_the_warm_up_lacks(
    runner_of: Callable[[str], CudaRunner], preset: str
) -> None:
    """WU1."""
    runner = runner_of(preset)
    warm, needed = warmed(runner, steps_of(runner)), served(runner)
    assert needed - warm == set()
    assert any("HAS_CHUNKS=True, PARTIAL=True" in variant for variant in needed), (
        "a long context beside a prompt"
    )
    assert any("HAS_CHUNKS=False, PARTIAL=False" in variant for variant in needed), "short contexts alone"


def test_each_kernel_is_run_by_the_warm_up_of_some_family(runner_of: Callable[[str], CudaRunner]) -> None:
    """A new kernel that no step of a warm-up runs is found here."""
    names = {
        variant.partition(":")[0]
        for preset in COVERING
        for variant in warmed(runner_of(preset), steps_of(runner_of(preset)))
    }
    assert names | {"write_one", "copy_kernel"} == launched_kernels(), "those run where memory is taken, too"


def test_copies_need_no_variant_that_the_start_lacks() -> None:
    """TR12, WU1: what is tried where memory is taken is all that copies launch, however many they are."""
    cache, layout = make_cache()
    with recorded_variants() as started:
        blocks = DeviceBlocks(cache, layout, make_store(), HostOrder(), move_by_kernel)
    with recorded_variants() as needed:
        blocks.copier.copy(
            [BlockCopy(block, False, block, True, group) for group in range(3) for block in range(3)]
        )
        blocks.copier.copies_aside([BlockCopy(1, True, 4, False), BlockCopy(4, False, 5, False)])()
        for group in range(2):
            blocks.write(group, [3, 1], blocks.read(group, [0, 5]))
        blocks.write_state(0, 1, 2, blocks.read_state(1, 0, 2))
    assert needed == started and {variant.partition(":")[0] for variant in needed} == {"copy_kernel"}


@pytest.mark.parametrize("left_out", ["long context", "prompt", "without a graph"])
def test_planted_a_warm_up_that_leaves_steps_out(
    runner_of: Callable[[str], CudaRunner], left_out: str
) -> None:
    runner = runner_of("tiny-qwen3")
    # Without a graph run rows with log-probabilities, or adjusted logits, as well.
    steps = [step for step in steps_of(runner) if left_out not in step.name and "sampling" not in step.name]
    lacking = served(runner) - warmed(runner, steps)
    assert lacking and all(variant.startswith("attend_kernel") for variant in lacking)


def test_planted_a_kernel_with_variants_by_the_width_of_tables(
    runner_of: Callable[[str], CudaRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first GPU compiled three of each while it served: widths of 1, of multiples of 16, and others."""
    runner = runner_of("tiny-qwen3")
    (width,) = [parameter for parameter in attend_kernel.params if parameter.name == "table_width"]
    monkeypatch.setattr(width, "do_not_specialize", False)
    monkeypatch.setattr(attend_kernel, "device_caches", defaultdict(attend_kernel.create_binder))
    assert served(runner) - warmed(runner, steps_of(runner))


def test_a_split_is_within_reach_of_these_tests() -> None:
    assert 2 * attention.SPLIT <= MOST_POSITIONS
