"""What a ring's figures are to be compared with: transformers on the same machine, and the ceiling that memory and
arithmetic set."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from signalbox.benchmarks.load.summary import Figures
from signalbox.errors import InternalError
from signalbox.runtime.start.interpreter import module_command

MODULE = "signalbox.benchmarks.runner.reference"


@dataclass(frozen=True)
class Shape:
    """One static batch: all streams start together."""

    streams: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Machine:
    """What the machine does at most, as measured, and how much the model asks of it."""

    read_bytes_s: float
    gemm_flop_s: float
    num_params: int
    """Parameters that each step reads whole."""
    num_head_params: int
    """Parameters of them in the projection to the vocabulary: a prompt needs it for its last token only."""
    param_bytes: int
    kv_bytes_per_token: int
    is_dense: bool
    """A model of experts reads only some of its parameters, so that it has no such ceiling."""

    def step_s(self, streams: int, context: int) -> float:
        """Least duration of a decode step: all weights and all KV are read once, and each token is multiplied."""
        num_bytes = self.num_params * self.param_bytes + streams * context * self.kv_bytes_per_token
        return max(num_bytes / self.read_bytes_s, 2 * self.num_params * streams / self.gemm_flop_s)

    def prefill_s(self, num_tokens: int) -> float:
        """Least duration of computing so many prompt tokens."""
        body = self.num_params - self.num_head_params
        return max(body * self.param_bytes / self.read_bytes_s, 2 * body * num_tokens / self.gemm_flop_s)

    def ceiling(self, shape: Shape) -> Figures:
        """Most tokens per second of a batch of this shape; nothing for a model of experts."""
        if not self.is_dense:
            return {}
        step_s = self.step_s(shape.streams, shape.prompt_tokens + shape.output_tokens // 2)
        whole_s = self.prefill_s(shape.streams * shape.prompt_tokens) + (shape.output_tokens - 1) * step_s
        return {
            "output_tok_s": round(shape.streams * shape.output_tokens / whole_s, 1),
            "decode_tok_s": round(shape.streams / step_s, 1),
        }


@dataclass(frozen=True)
class Reference:
    """What the subprocess found."""

    machine: Machine
    machine_figures: Figures
    transformers: dict[int, Figures]
    """By number of streams."""


def measure(model: Path, shapes: list[Shape], *, dtype: str, threads: int, repeat: int) -> Reference:
    """Runs the reference in a process of the worker's package. Raises InternalError when it fails."""
    command = module_command(MODULE, f"--model={model}", f"--dtype={dtype}", f"--threads={threads}")
    command += [f"--prompt-tokens={shapes[0].prompt_tokens}", f"--output-tokens={shapes[0].output_tokens}"]
    command += [f"--repeat={repeat}", "--streams", *(str(shape.streams) for shape in shapes)]
    environment = {"OMP_WAIT_POLICY": "PASSIVE"} | os.environ
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    if done.returncode:
        raise InternalError(f"the reference measurement ended with status {done.returncode}; see above")
    return parse(done.stdout)


def parse(text: str) -> Reference:
    """Reads the lines of the subprocess."""
    first, *others = (json.loads(line) for line in text.splitlines() if line.startswith("{"))
    machine = Machine(**{name: first[name] for name in Machine.__dataclass_fields__})
    return Reference(machine, first, {line["streams"]: line for line in others})


def compare(measured: Figures, other: Figures) -> dict[str, float]:
    """How many times the other's rates are reached; a rate that one of them lacks is left out."""
    return {
        f"{name}_ratio": round(mine / theirs, 3)
        for name in ("output_tok_s", "decode_tok_s")
        if isinstance(mine := measured.get(name), float)
        and isinstance(theirs := other.get(name), int | float)
    }
