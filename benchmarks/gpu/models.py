"""The model of the speed stages and of the ring: a given one, or random weights in the largest shape that fits."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.order import Order
from tools.make_random_model import make_model, write_word_tokenizer

GIB = 1 << 30
FITTING = ((40 * GIB, "qwen3-8b"), (8 * GIB, "qwen3-0.6b"), (0, "qwen3-60m"))
"""Least memory of a card, and the preset that it gets."""
ON_CPU = "speck-qwen3"


def model_of(order: Order) -> Path:
    """The directory of the model, made with the first call of a run."""
    if order.model is not None:
        return order.model
    preset = fitting_preset() if order.is_gpu else ON_CPU
    path = order.work_dir / f"random-{preset}"
    if not (path / "tokenizer.json").exists():
        dtype = torch.bfloat16 if order.is_gpu else torch.float32
        make_model(preset, path, dtype=dtype, device=order.device)
        write_word_tokenizer(path)  # the last file: without it the directory is made again
        free_unused()
    return path


def fitting_preset() -> str:
    """The largest shape that the card has memory for."""
    memory = torch.cuda.get_device_properties(0).total_memory
    return next(name for least, name in FITTING if memory >= least)


def free_unused() -> None:
    """Gives back to the device what torch keeps without using it."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def meta_model(path: Path) -> Any:
    """A model's modules without memory, to count what they are made of."""
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415

    loader: Any = AutoModelForCausalLM
    with torch.device("meta"):
        return loader.from_config(AutoConfig.from_pretrained(path))
