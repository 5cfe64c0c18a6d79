"""The model of the speed stages on the product's runner, and what a step of it has to read and compute."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import torch

from benchmarks.gpu.context import Context
from benchmarks.gpu.machine import bandwidths
from benchmarks.gpu.models import free_unused, meta_model, model_of
from benchmarks.gpu.right.stage import stand_in
from signalbox.benchmarks.runner.cuda import bytes_per_token
from signalbox.benchmarks.runner.reference import count_read
from worker_svc.runner.cuda.runner import CudaRunner
from worker_svc.runner.warming.warm_up import warm_up

UTILIZATION = 0.9
"""Share of a GPU's memory that the runner may fill."""
PEAKS = {"H100": 989.4e12, "H200": 989.4e12, "H800": 989.4e12, "A100": 312e12, "L40S": 362e12, "4090": 165e12}
"""Dense products in bfloat16 per second, by what a card's name has in it."""
KEY = "loaded"
MOST_TOKENS = 8192
"""Tokens of the largest step."""


@dataclass(frozen=True)
class SpeedSizes:
    """How large the speed stages are."""

    rows: tuple[int, ...]
    contexts: tuple[int, ...]
    max_model_len: int
    steps: int
    """Steps that are measured."""
    chunks: tuple[int, ...]
    """Of prompts beside rows that decode."""
    prompts: tuple[tuple[int, int], ...]
    """Numbers of prompts and their lengths, of one step each."""


GPU = SpeedSizes(
    rows=(1, 32, 64, 128, 256),
    contexts=(512, 2048),
    max_model_len=9216,
    steps=16,
    chunks=(64, 512),
    prompts=((1, 2048), (4, 2048), (16, 512), (1, 8192)),
)
CPU = SpeedSizes(
    rows=(1, 2), contexts=(8,), max_model_len=64, steps=2, chunks=(8,), prompts=((1, 16), (2, 8))
)


@dataclass
class Loaded:
    """A runner with its model."""

    runner: CudaRunner
    sizes: SpeedSizes
    load_s: float
    bandwidth: float
    """Bytes per second that are read, or read and written: the larger of the two."""
    weight_bytes: int
    """That each decode step reads."""
    num_products: int
    """Multiplications of a token in the products of the layers."""
    num_head: int
    """The same, of its logits."""
    num_late: int = 0
    """Kernels that were compiled after the warm-up and have been told."""

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.runner.model.device

    def floor_ms(self, rows: int, context: float) -> float:
        """Time to read what a decode step reads."""
        read = self.weight_bytes + rows * context * bytes_per_token(self.runner)
        return read / self.bandwidth * 1e3

    def flops(self, length: int) -> float:
        """Of a prompt of `length` tokens from its first one on, causal attention included."""
        config = self.runner.model.module.config.get_text_config()
        heads = config.num_attention_heads
        width = heads * (getattr(config, "head_dim", None) or config.hidden_size // heads)
        attention: float = 4.0 * width * length * (length + 1) / 2 * config.num_hidden_layers
        return 2.0 * self.num_products * length + 2.0 * self.num_head + attention

    def check_compiles(self, context: Context) -> None:
        """Fails the stage if its steps have compiled kernels, which the warm-up should have done."""
        found = self.runner.warm_up.num_late_compiles
        late, self.num_late = found - self.num_late, found
        if late:
            context.fail(f"{late} kernel variants were compiled after the warm-up; the log has their names")

    @property
    def peak(self) -> float | None:
        """The card's products per second in bfloat16; None: unknown, or not what runs."""
        if self.device.type != "cuda" or self.runner.model.dtype != torch.bfloat16:
            return None
        name = torch.cuda.get_device_name(self.device)
        return next((peak for part, peak in PEAKS.items() if part in name), None)


def loaded(context: Context) -> Loaded:
    """The runner of this process, loaded with the first call."""
    found = context.kept.get(KEY)
    if found is None:
        logging.basicConfig(level=logging.INFO)
        found = context.kept[KEY] = _load(context)
    assert isinstance(found, Loaded)
    return found


def _load(context: Context) -> Loaded:
    order = context.order
    sizes = GPU if order.is_gpu else CPU
    path = model_of(order)
    device = torch.device(order.device)
    bandwidth = max(bandwidths(device))
    free_unused()
    module = meta_model(path)
    head = module.get_output_embeddings().weight.numel()
    started = time.perf_counter()
    runner = CudaRunner(
        path,
        served_model_name="bench",
        attention="auto" if order.is_gpu else "triton",
        capture=stand_in(context),
        device=order.device,
        dtype="auto",
        block_size=16 if order.is_gpu else 4,
        num_slots=max(sizes.rows),
        max_model_len=min(sizes.max_model_len, module.config.get_text_config().max_position_embeddings),
        has_groups=False,
        gpu_memory_utilization=UTILIZATION if order.is_gpu else None,
        num_blocks=None if order.is_gpu else 64,
    )
    seconds = time.perf_counter() - started
    if order.is_gpu:  # as the service does; the interpreter compiles nothing
        warm_up(runner, None, MOST_TOKENS)
    read = count_read(module)
    return Loaded(runner, sizes, seconds, bandwidth, read * runner.model.dtype.itemsize, read - head, head)
