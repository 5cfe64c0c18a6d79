"""The stage `memory`: what the model and its cache take, and whether that is what was asked for."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.gpu.context import Context
from benchmarks.gpu.speed.loaded import MOST_TOKENS, UTILIZATION, Loaded, loaded
from benchmarks.gpu.speed.steps import computed
from signalbox.benchmarks.runner.cuda import bytes_per_token
from worker_svc.runner.cuda.sampler import heaviest_plan, sample_on_device

TOLERANCE = 0.02
"""Share of the card by which more or less may be filled than was asked for."""


def run(context: Context) -> None:
    """Writes one line. Fails where the share of the card that is filled is not what was asked for."""
    model = loaded(context)
    runner, info = model.runner, model.runner.info
    modules = {type(module).__name__ for module in runner.model.module.modules()}
    context.line(
        "loaded",
        load_s=round(model.load_s, 1),
        warm_s=round(runner.warm_up.seconds, 1),
        dtype=str(runner.model.dtype).removeprefix("torch."),
        batch=runner.batch_class.__name__,
        graphs=runner.num_graphs,
        fused=", ".join(sorted(name for name in modules if name.startswith(("Triton", "Joined")))) or "none",
        num_blocks=info.num_blocks,
        max_model_len=info.max_model_len,
        num_slots=info.num_slots,
        read_gb=round(model.weight_bytes / 1e9, 2),
        kv_bytes_per_token=bytes_per_token(runner),
    )
    _run_a_large_step(model)
    model.check_compiles(context)
    if runner.num_graphs < len(runner.decode_sizes):
        context.fail(
            f"{runner.num_graphs} of {len(runner.decode_sizes)} decode steps are graphs; the log says why"
        )
    if context.order.is_gpu:
        _compare(context, model.device)


def _run_a_large_step(model: Loaded) -> None:
    """The most that a step takes beside the cache."""
    info = model.runner.info
    length = min(MOST_TOKENS, info.max_model_len - 4, info.num_blocks * info.block_size - 4)
    steps = computed(model, 1, length, 3)
    steps.step(rows=np.zeros(1, np.int32))
    steps.settle()
    if model.runner.num_graphs:
        _sample_heavily(model)


@torch.inference_mode()
def _sample_heavily(model: Loaded) -> None:
    """The sampling that takes most memory, of all slots."""
    info, of = model.runner.info, model.runner.model
    logits = torch.zeros((info.num_slots, info.vocab_size), dtype=of.dtype, device=of.device)
    sample_on_device(logits, heaviest_plan(info.num_slots, info.vocab_size, logits.device))


def _compare(context: Context, device: torch.device) -> None:
    free, whole = torch.cuda.mem_get_info(device)
    share = (whole - free) / whole
    context.line(
        "memory",
        whole_gb=round(whole / 1e9, 2),
        allocated_gb=round(torch.cuda.memory_allocated(device) / 1e9, 2),
        reserved_gb=round(torch.cuda.memory_reserved(device) / 1e9, 2),
        free_gb=round(free / 1e9, 2),
        asked=UTILIZATION,
        filled=round(share, 4),
    )
    if abs(share - UTILIZATION) > TOLERANCE:
        context.fail(f"{share:.1%} of the card are filled, {UTILIZATION:.0%} were asked for")
