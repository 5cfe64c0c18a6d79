"""Where a run goes on that was stopped."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tools.demo_model.optimizers import Optimizers
from tools.demo_model.settings import Settings
from tools.demo_model.tokenizer import VOCAB_SIZE


@dataclass
class Progress:
    """What a checkpoint remembers besides tensors."""

    step: int = 0
    elapsed_s: float = 0.0
    tokens: int = 0
    train_loss: float = math.log(VOCAB_SIZE)
    """Moving average over about the last 50 steps, nats per token."""

    def add_step(self, loss: float, tokens: int, seconds: float) -> None:
        weight = max(0.02, 1 / (self.step + 1))
        self.train_loss += weight * (loss - self.train_loss)
        self.step += 1
        self.tokens += tokens
        self.elapsed_s += seconds


def run_key(settings: Settings) -> dict[str, Any]:
    """The settings that a checkpoint must share with the run that goes on from it."""
    free = {"out", "work_dir", "minutes", "threads", "tokenizer", "export_only"}
    return {name: value for name, value in asdict(settings).items() if name not in free}


def flatten_states(optimizers: Optimizers) -> dict[str, torch.Tensor]:
    return {
        f"{name}.{index}.{key}": tensor
        for name, optimizer in optimizers.items()
        for index, state in optimizer.state_dict()["state"].items()
        for key, tensor in state.items()
    }


def restore_states(optimizers: Optimizers, tensors: dict[str, torch.Tensor]) -> None:
    states: dict[str, dict[int, dict[str, torch.Tensor]]] = {name: {} for name in optimizers}
    for path, tensor in tensors.items():
        name, index, key = path.split(".")
        states[name].setdefault(int(index), {})[key] = tensor
    for name, optimizer in optimizers.items():
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": states[name], "param_groups": groups})


def list_checkpoints(work_dir: Path) -> list[Path]:
    return sorted(work_dir.glob("checkpoint-[0-9]*"), key=lambda path: int(path.name.partition("-")[2]))


def save_checkpoint(settings: Settings, model: Any, optimizers: Optimizers, progress: Progress) -> None:
    """Written aside and renamed, so that a checkpoint that can be seen is a whole one."""
    older = list_checkpoints(settings.work_dir)
    aside = settings.work_dir / "incomplete"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    save_file(dict(model.named_parameters()), aside / "model.safetensors")
    save_file(flatten_states(optimizers), aside / "optimizer.safetensors")
    state = {"settings": run_key(settings), "progress": asdict(progress)}
    (aside / "state.json").write_text(json.dumps(state, indent=2))
    target = settings.work_dir / f"checkpoint-{progress.step}"
    if target not in older:
        aside.rename(target)
    for path in older:
        if path != target:
            shutil.rmtree(path)


def load_checkpoint(settings: Settings, model: Any, optimizers: Optimizers) -> Progress:
    """Restores the newest checkpoint in place; a fresh Progress where there is none."""
    checkpoints = list_checkpoints(settings.work_dir)
    if not checkpoints:
        return Progress()
    state = json.loads((checkpoints[-1] / "state.json").read_text())
    if state["settings"] != run_key(settings):
        raise SystemExit(f"{checkpoints[-1]} was made with other settings: {state['settings']}")
    # The head is tied to the embedding and has no tensor of its own.
    model.load_state_dict(load_file(checkpoints[-1] / "model.safetensors"), strict=False)
    restore_states(optimizers, load_file(checkpoints[-1] / "optimizer.safetensors"))
    return Progress(**state["progress"])
