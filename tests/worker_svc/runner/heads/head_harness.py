"""A worker's core on a runner of a model that classifies, scores or embeds, and what transformers makes of the same."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tools.random_heads import PRESETS
from worker_svc.core.batch import ModelRunner
from worker_svc.core.faults.isolation import run_step
from worker_svc.core.requests.pooling import PoolingParams
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.core.step import NewRequest, RequestRef, SlotStart, StepDelta
from worker_svc.core.worker_core import WorkerCore
from worker_svc.runner.encoder.loading import is_encoder
from worker_svc.runner.encoder.runner import EncoderRunner
from worker_svc.runner.torch_runner import TorchRunner

BLOCKS_PER_SLOT = 60
BLOCK_SIZE = 4


def make_head_runner(path: Path, **settings: Any) -> EncoderRunner | TorchRunner:
    options: dict[str, Any] = {"dtype": "float32", "block_size": BLOCK_SIZE, "threads": 1} | settings
    if is_encoder(path):
        return EncoderRunner(path, served_model_name="tiny", **options)
    return TorchRunner(path, served_model_name="tiny", **({"num_blocks": 512} | options))


class HeadWorker:
    """A core; each slot has blocks of its own."""

    def __init__(self, runner: ModelRunner) -> None:
        self.runner = runner
        self.core = WorkerCore(runner.info, num_slots=8)
        self.step_id = 0
        self.results: dict[int, Any] = {}
        self.failures: dict[int, str] = {}

    def add(self, slot: int, prompt: list[int], params: PoolingParams) -> None:
        ref = RequestRef(f"r{slot}", slot, "f")
        tokens = np.array(prompt, np.int32)
        self.core.add(NewRequest(slot, ref, tokens, 0, 0, SamplingParams(), b"", pooling=params))

    def step(self, **changes: Any) -> None:
        self.step_id += 1
        step = self.core.apply(StepDelta(self.step_id, 1, **changes))
        sampled, failed = run_step(self.runner, step.copies, step.batch)
        assert not failed, failed
        _, outputs = self.core.commit(step, sampled, failed)
        for output in outputs:
            self.results |= dict(output.vectors)
            for attempt, _, _, failure in output.finished:
                if failure is not None:
                    self.failures[attempt] = failure.code


def start(slot: int, length: int) -> SlotStart:
    blocks = np.arange(BLOCKS_PER_SLOT, dtype=np.int32) + BLOCKS_PER_SLOT * slot
    return SlotStart(slot, blocks, 0, length)


@cache
def load_model(path: Path, preset: str) -> Any:
    model_class = getattr(transformers, f"{PRESETS[preset].config}{PRESETS[preset].auto or 'Model'}")
    return model_class.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()


@torch.inference_mode()
def reference(path: Path, preset: str, prompt: list[int], num_first_tokens: int = 0) -> Any:
    """What transformers makes of one prompt alone."""
    given = {"input_ids": torch.tensor([prompt])}
    if PRESETS[preset].types:
        first = num_first_tokens or len(prompt)
        given["token_type_ids"] = torch.tensor([[int(i >= first) for i in range(len(prompt))]])
    return load_model(path, preset)(**given)
