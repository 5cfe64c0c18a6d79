"""The training loop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from tools.demo_model.batches import draw_batch
from tools.demo_model.checkpoints import Progress, load_checkpoint, save_checkpoint
from tools.demo_model.optimizers import build_optimizers, set_learning_rates, take_step
from tools.demo_model.settings import Settings

CHECKPOINT_SECONDS = 120
LOG_SECONDS = 15


def format_progress(progress: Progress, settings: Settings) -> str:
    speed = progress.tokens / max(progress.elapsed_s, 1e-9)
    left = max(0.0, settings.seconds - progress.elapsed_s)
    return (
        f"step {progress.step:5d}  loss {progress.train_loss:.4f}  {progress.tokens / 1e6:.2f} M tokens  "
        f"{speed:.0f} tokens/s  ETA {left / 60:.1f} min"
    )


def every(seconds: float) -> Iterator[bool]:
    """True once in each period, False in between."""
    due = time.monotonic() + seconds
    while True:
        is_due = time.monotonic() >= due
        due = time.monotonic() + seconds if is_due else due
        yield is_due


def train(settings: Settings, model: Any, stream: torch.Tensor) -> Progress:
    optimizers = build_optimizers(model, settings)
    progress = load_checkpoint(settings, model, optimizers)
    log_due, checkpoint_due = every(LOG_SECONDS), every(CHECKPOINT_SECONDS)
    while progress.elapsed_s < settings.seconds:
        started = time.monotonic()
        set_learning_rates(optimizers, settings, progress.elapsed_s / settings.seconds)
        rows = draw_batch(stream, settings, progress.step)
        loss = take_step(model, optimizers, rows)
        progress.add_step(loss, rows[:, 1:].numel(), time.monotonic() - started)
        if next(log_due):
            print(format_progress(progress, settings), flush=True)
        if next(checkpoint_due):
            save_checkpoint(settings, model, optimizers, progress)
    save_checkpoint(settings, model, optimizers, progress)
    print(format_progress(progress, settings), flush=True)
    return progress
