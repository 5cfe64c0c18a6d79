"""How large the stage `right` is: on a GPU, and in Triton's interpreter."""

from __future__ import annotations

from dataclasses import dataclass

from tools.hybrid_families import HYBRID_PRESETS


@dataclass(frozen=True)
class RightSizes:
    """What runs of each preset."""

    presets: tuple[str, ...]
    prompts: tuple[int, ...]
    """Lengths; those that the model cannot take are cut."""
    num_outputs: int
    chunk: int
    """Most tokens of a step, so that prompts are computed in chunks beside rows that decode."""
    block_size: int
    num_blocks: int
    max_model_len: int
    num_slots: int


GPU = RightSizes(
    presets=(
        *("tiny-qwen3", "tiny-gemma3", "tiny-gpt-oss", "tiny-llama", "tiny-mistral", "tiny-gemma2"),
        *("tiny-qwen3-moe", "tiny-llama4", "tiny-deepseek-v3"),
        *HYBRID_PRESETS,
    ),
    prompts=(1, 15, 16, 33, 100, 300, 700),
    num_outputs=24,
    chunk=96,
    block_size=16,
    num_blocks=512,
    max_model_len=1024,
    num_slots=16,
)
"""The longest prompt is longer than a split of a context."""
CPU = RightSizes(
    presets=("speck-qwen3",),
    prompts=(1, 18),
    num_outputs=5,
    chunk=16,
    block_size=4,
    num_blocks=60,
    max_model_len=64,
    num_slots=8,
)
NUM_DRAFTS = 3


def sizes_on(device: str) -> RightSizes:
    """By device, cuda or cpu."""
    return GPU if device == "cuda" else CPU
