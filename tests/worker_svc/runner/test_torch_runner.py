"""The torch runner against transformers' own generation, and against itself in other batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from runner_harness import Driver
from transformers import AutoModelForCausalLM

from worker_svc.core.sampling import SamplingParams
from worker_svc.runner.torch_runner import TorchRunner

ModelDir = Callable[[str], Path]
PRESETS = ("tiny-llama", "tiny-qwen3", "tiny-mistral")
PROMPT_LENGTHS = (1, 2, 5, 16, 17, 31, 40, 61)
OUTPUT_TOKENS = 24
EPSILON = 1e-4
"""Where the reference's two best logits are closer than this, either token is right."""


def make_runner(path: Path, block_size: int = 4, **settings: object) -> TorchRunner:
    options = {"dtype": "float32", "num_blocks": 512 // block_size * 2} | settings
    return TorchRunner(path, served_model_name="tiny", block_size=block_size, **options)  # type: ignore[arg-type]


def make_prompts(lengths: tuple[int, ...] = PROMPT_LENGTHS) -> list[list[int]]:
    random = np.random.default_rng(5)
    return [random.integers(3, 512, length).tolist() for length in lengths]


def generate(path: Path, prompt: list[int]) -> tuple[list[int], torch.Tensor]:
    """Greedy output of transformers, and its logits `[OUTPUT_TOKENS, V]`."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    model.generation_config.eos_token_id = None
    result = model.generate(
        torch.tensor([prompt]),
        max_new_tokens=OUTPUT_TOKENS,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        pad_token_id=0,
    )
    return result.sequences[0, len(prompt) :].tolist(), torch.cat(result.logits)


def assert_same_but_for_ties(actual: list[int], expected: list[int], logits: torch.Tensor) -> int:
    """Compares up to a near tie of the reference that was decided otherwise. Returns how many there were, 0 or 1."""
    assert len(actual) == len(expected)
    for i, (token, wanted) in enumerate(zip(actual, expected, strict=True)):
        if token != wanted:
            best = logits[i].topk(2).values
            assert best[0] - best[1] < EPSILON, f"token {i} is {token}, not {wanted}"
            return 1
    return 0


@pytest.mark.parametrize("block_size", [4, 16])
@pytest.mark.parametrize("preset", PRESETS)
def test_greedy_output_equals_generate(model_dir: ModelDir, preset: str, block_size: int) -> None:
    path = model_dir(preset)
    driver = Driver(make_runner(path, block_size), seed=block_size)
    requests = [driver.add(prompt, OUTPUT_TOKENS) for prompt in make_prompts()]
    driver.run()
    near_ties = 0
    for request in requests:
        expected, logits = generate(path, request.tokens[: request.num_prompt])
        near_ties += assert_same_but_for_ties(request.output, expected, logits)
    distinct = np.mean([len(set(r.output)) for r in requests])
    assert distinct > OUTPUT_TOKENS / 2, "the model repeats itself: the comparison proves little"
    print(f"{preset}, block size {block_size}: {near_ties} near ties in {len(requests)} outputs")
    assert near_ties <= 1
