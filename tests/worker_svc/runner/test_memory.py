"""How large the KV cache becomes, and what is refused because it does not fit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from signalbox.errors import StartupError
from signalbox.runtime import config
from tests.worker_svc.runner.reference import make_runner
from worker_svc.config import WorkerSettings
from worker_svc.runner.attention.attention import PagedBatch
from worker_svc.runner.attention.layer_groups import Need
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model import cache_making, checkpoint, memory
from worker_svc.runner.model.cache_making import CacheMaker
from worker_svc.runner.model.loading import load_model
from worker_svc.runner.model.memory import GIB, CacheSize
from worker_svc.runner.model.memory_profile import run_largest_step
from worker_svc.weights.source import open_weights

ModelDir = Callable[[str], Path]
CPU = torch.device("cpu")


def test_weights_that_do_not_fit_are_refused_with_the_numbers() -> None:
    available = memory.available_bytes(CPU)
    with pytest.raises(ModelLoadError, match=r"^The weights of m take \d+\.\d\d GiB in bfloat16, but only"):
        memory.check_weights_fit(Path("m"), 2 * available, torch.bfloat16, available)
    memory.check_weights_fit(Path("m"), available // 2, torch.float32, available)


@pytest.mark.parametrize("preset", ["tiny-llama", "tiny-gpt2"])
def test_weights_are_counted_without_loading_them(model_dir: ModelDir, preset: str) -> None:
    path = model_dir(preset)
    module = load_model(path, dtype="float32").module
    source = open_weights(path, checkpoint.read_json(path / checkpoint.CONFIG))
    assert source.num_elements == sum(weight.numel() for weight in module.parameters())


def test_a_cache_that_does_not_fit_is_refused_with_what_would() -> None:
    available = memory.available_bytes(CPU)
    blocks = available // GIB
    memory.check_cache_fits(max(blocks - 2, 0), 0, GIB, CPU)
    reason = r"takes \d+\.00 GiB, but only .* enough for \d+ blocks"
    with pytest.raises(ModelLoadError, match=reason):
        memory.check_cache_fits(blocks + 4, 0, GIB, CPU)
    with pytest.raises(ModelLoadError, match=reason):
        memory.check_cache_fits(max(blocks - 2, 0), 6, GIB, CPU)


def test_a_gpus_share_is_what_model_and_step_leave() -> None:
    assert memory.gpu_cache_bytes(0.9, total=100 * GIB, free=80 * GIB, step=5 * GIB) == 65 * GIB
    with pytest.raises(
        ModelLoadError, match=r"0\.2 allows 20\.00 GiB of 100\.00 GiB, but 20\.00 GiB are taken"
    ):
        memory.gpu_cache_bytes(0.2, total=100 * GIB, free=80 * GIB, step=1)


GB = 10**9
H100_BYTES = 85.02 * GB
BLOCK_BYTES = 16 * 147_456
"""Of a block of 16 positions of an 8B model in bfloat16."""


@pytest.mark.parametrize(("of", "to"), [((18.83, 19_113), (8.14, 23_664)), ((8.14, 23_664), (18.83, 19_113))])
def test_a_gpus_share_gives_the_blocks_that_it_had(of: tuple[float, int], to: tuple[float, int]) -> None:
    """Two loads of one model on the first H100, by free bytes and blocks: from what one took beside its blocks follow
    those of the other, at the share of the card that was in use there, within 0.1 % of the card (2 % is allowed)."""
    taken = H100_BYTES - of[0] * GB - of[1] * BLOCK_BYTES
    share = 1 - to[0] * GB / H100_BYTES
    left = memory.gpu_cache_bytes(share, total=int(H100_BYTES), free=int(H100_BYTES - taken), step=0)
    assert abs(left - to[1] * BLOCK_BYTES) < 0.001 * H100_BYTES


def test_what_cuda_takes_for_graphs_covers_what_the_first_gpu_showed() -> None:
    """There torch had reserved 65.35 GB of the 66.19 that were in use: 0.84 for CUDA's context and 27 graphs."""
    outside = (H100_BYTES - 18.83 * GB - 65.35 * GB) / memory.GIB
    context = 0.5
    reserved = 27 * memory.GRAPH_BYTES / memory.GIB
    assert outside - context < reserved < outside
    largest = 500 << 20
    assert memory.graphs_bytes(largest, 27) == largest + 27 * memory.GRAPH_BYTES + 2 * memory.WORKSPACE_BYTES


@pytest.mark.parametrize("total", [80 * GIB, 10 * GIB])
def test_a_share_counts_all_that_is_taken_later(total: int) -> None:
    """Of a card, or of a slice of one."""
    step, graphs, free = GIB, GIB // 2, total - 2 * GIB
    cache = memory.gpu_cache_bytes(0.9, total=total, free=free, step=step, graphs=graphs)
    assert total - free + cache + step + graphs == int(0.9 * total)
    with pytest.raises(ModelLoadError, match=r"steps take up to 1\.50 GiB more"):
        memory.gpu_cache_bytes(3 * GIB / total, total=total, free=free, step=step, graphs=graphs)


def test_a_containers_limit_counts_without_its_cached_files(tmp_path: Path) -> None:
    assert memory.cgroup_available_bytes(tmp_path) > 1 << 60, "no such files: no limit"
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("700\n")
    assert memory.cgroup_available_bytes(tmp_path) > 1 << 60
    (tmp_path / "memory.max").write_text("1000\n")
    assert memory.cgroup_available_bytes(tmp_path) == 300
    (tmp_path / "memory.stat").write_text("anon 100\ninactive_file 250\nactive_file 350\n")
    assert memory.cgroup_available_bytes(tmp_path) == 550


@pytest.mark.parametrize("num_tokens", [1, 16, 100])
@pytest.mark.parametrize("preset", ["tiny-llama", "tiny-mistral", "hybrid-qwen3-5"])
def test_the_profiled_step_runs_as_many_tokens_as_a_step_may_have(
    model_dir: ModelDir, preset: str, num_tokens: int
) -> None:
    model = load_model(model_dir(preset), dtype="float32")
    logits = run_largest_step(model, PagedBatch, block_size=16, num_tokens=num_tokens)
    assert logits.shape == (-(-num_tokens // 16), model.vocab_size)
    assert torch.isfinite(logits).all()


def test_a_step_that_a_gpu_has_no_room_for_is_told_in_a_sentence(
    model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_out(*_: object) -> int:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(cache_making, "step_bytes", run_out)
    model = replace(load_model(model_dir("tiny-llama"), dtype="float32"), device=torch.device("cuda"))
    need = Need(block_size=16, mean_tokens=64, step_tokens=2048, max_tokens=128)
    maker = CacheMaker(model, CacheSize(gpu_utilization=0.9), need)
    with pytest.raises(
        ModelLoadError, match=r"step of 2048 tokens does not fit.*Lower max_num_batched_tokens"
    ):
        maker.make(PagedBatch, 0, has_groups=False, is_shared=False)


def test_the_cache_takes_what_was_given(model_dir: ModelDir) -> None:
    info = make_runner(model_dir("tiny-llama"), num_blocks=None, kv_cache_memory=3 << 20, block_size=16).info
    assert info.num_blocks == (3 << 20) // (3 * 16 * 2 * (16 + 16) * 4)


@pytest.mark.parametrize(("given", "num_bytes"), [("2GiB", 2 << 30), ("1.5 MB", 1_500_000), ("4096", 4096)])
def test_memory_is_given_in_units(given: str, num_bytes: int) -> None:
    assert config.load(WorkerSettings, ["--kv-cache-memory", given]).kv_cache_memory == num_bytes


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("--num-blocks 3 --kv-cache-memory 2GiB", "--num-blocks and --kv-cache-memory both size"),
        ("--device cuda --num-blocks 3 --gpu-memory-utilization 0.9", "both size the KV cache"),
        ("--gpu-memory-utilization 0.9", "--gpu-memory-utilization is for --device cuda"),
        ("--device cuda --gpu-memory-utilization 1.1", "less than or equal to 1"),
        ("--runner sim --kv-cache-memory 2GiB", "--kv-cache-memory is for the torch runner"),
        ("--kv-cache-memory 2furlongs", "could not interpret byte unit"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(flags: str, reason: str) -> None:
    with pytest.raises(StartupError, match=reason):
        config.load(WorkerSettings, flags.split())


@pytest.mark.slow
def test_a_worker_says_in_one_sentence_that_its_cache_does_not_fit(model_dir: ModelDir) -> None:
    options = ["--model", str(model_dir("tiny-llama")), "--kv-cache-memory=900TiB", "--listen=127.0.0.1:0"]
    command = [sys.executable, "-m", "worker_svc", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    *logged, sentence = done.stderr.splitlines()
    assert sentence.startswith("worker: The KV cache of ") and "921600.00 GiB" in sentence
    told = (
        " worker WARNING ",
        " worker INFO threads of the model: ",
        " worker INFO weights: ",
        " worker INFO The CPU kernels ",
    )
    assert all(any(part in line for part in told) for line in logged), "what the load says, and no traceback"
