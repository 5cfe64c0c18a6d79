"""What a run is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MAX_CONTEXT = 2048


@dataclass(frozen=True)
class Settings:
    out: Path
    work_dir: Path
    minutes: float
    """Wall-clock training time, summed over the resumed runs; the learning rate falls to zero over it."""
    threads: int
    seed: int
    tokenizer: Path | None
    """Folder whose tokenizer is reused; None trains one on the data."""
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    batch_tokens: int
    sequence_length: int
    muon_lr: float
    adam_lr: float
    export_only: bool

    @property
    def seconds(self) -> float:
        return self.minutes * 60
