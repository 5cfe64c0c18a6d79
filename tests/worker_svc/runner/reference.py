"""What transformers itself generates, and attention written plainly: what a runner is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from worker_svc.runner.attention.torch_attention import Scores
from worker_svc.runner.torch_runner import TorchRunner

PROMPT_LENGTHS = (1, 2, 5, 16, 17, 31, 40, 61)
OUTPUT_TOKENS = 20
EPSILON = 1e-4
"""Where the reference's two best logits are closer than this, either token is right."""
LONGEST = {"tiny-deepseek-v32": 160, "tiny-glm-moe-dsa": 160}
"""Positions up to which a family is served, where it is not as far as its config says."""
BFLOAT16_BOUND = 0.5
"""The same for real weights in bfloat16: of logits from 32 to 64, which the best ones reach, it has every fourth part
of 1, and each of the two may be one such step off."""


def make_runner(path: Path, **settings: Any) -> TorchRunner:
    options: dict[str, Any] = {
        "dtype": "float32",
        "num_blocks": 256,
        "block_size": 4,
        "threads": 1,
        "num_slots": 16,
    }
    return TorchRunner(path, served_model_name="tiny", **(options | settings))


def make_prompts(lengths: tuple[int, ...] = PROMPT_LENGTHS) -> list[list[int]]:
    random = np.random.default_rng(5)
    return [random.integers(3, 512, length).tolist() for length in lengths]


@cache
def load_reference(path: Path) -> Any:
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    model.generation_config.eos_token_id = None
    return model


@cache
def generate(
    path: Path, prompt: tuple[int, ...], num_tokens: int = OUTPUT_TOKENS
) -> tuple[list[int], torch.Tensor]:
    """Greedy output of transformers, and its logits `[num_tokens, V]`."""
    result = load_reference(path).generate(
        torch.tensor([prompt]),
        max_new_tokens=num_tokens,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        pad_token_id=0,
    )
    return result.sequences[0, len(prompt) :].tolist(), torch.cat(result.logits)


def continuation(model: Any, prompt: list[int], proposed: list[int], num_tokens: int) -> list[int]:
    """Greedy output of transformers after a prompt: until an end-of-sequence token or for `num_tokens`.

    One forward pass over what is `proposed` says it all where that is right: a token is the greedy one if it is the
    best after tokens that are. From the first that is not on, the output is the model's own.
    """
    tokens = prompt + proposed
    with torch.inference_mode():
        best = model(torch.tensor([tokens])).logits[0, len(prompt) - 1 :].argmax(-1).tolist()
    right = next((i for i, token in enumerate(proposed) if token != best[i]), len(proposed))
    output: list[int] = [*proposed[:right], best[right]]
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    end = next((i + 1 for i, token in enumerate(output) if token in ends), num_tokens)
    output = output[: min(end, num_tokens)]
    if len(output) < num_tokens and output[-1] not in ends:
        return output + continuation(model, prompt + output, [], num_tokens - len(output))
    return output


def assert_near_the_best(
    model: Any, prompt: list[int], output: list[int], bound: float = BFLOAT16_BOUND
) -> int:
    """Each token's logit in the reference, behind the tokens that are ahead of it, is at most `bound` below the best.
    Returns how many tokens are not the best."""
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + output[:-1]]), logits_to_keep=len(output)).logits[0].float()
    tokens = torch.tensor(output)
    below = logits.max(-1).values - logits.gather(1, tokens[:, None])[:, 0]
    worst = int(below.argmax())
    assert below[worst] <= bound, f"token {worst} is {below[worst]:.3f} below the best"
    return int((tokens != logits.argmax(-1)).sum())


def assert_same_but_for_ties(actual: list[int], expected: list[int], logits: torch.Tensor) -> int:
    """Compares up to a near tie of the reference that was decided otherwise. Returns the ties met, 0 or 1."""
    assert len(actual) == len(expected)
    for i, (token, wanted) in enumerate(zip(actual, expected, strict=True)):
        if token != wanted:
            best = logits[i].topk(2).values
            assert best[0] - best[1] < EPSILON, f"token {i} is {token}, not {wanted}"
            return 1
    return 0


def assert_greedy(
    output: list[int], path: Path, prompt: Sequence[int], num_tokens: int = OUTPUT_TOKENS
) -> int:
    """Asserts that it is transformers' greedy output of so many tokens, up to a near tie that was decided otherwise.
    Returns the ties met, 0 or 1.

    One forward pass shows it where each token is the best after those before it. Where one is not, transformers
    generates token by token.
    """
    assert len(output) == num_tokens > 0
    if is_greedy(load_reference(path), prompt, output):
        return 0
    return assert_same_but_for_ties(output, *generate(path, tuple(prompt), num_tokens))


def is_greedy(model: Any, prompt: Sequence[int], output: Sequence[int]) -> bool:
    """Whether each token has the highest logit after those before it, in one forward pass of the reference."""
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt, *output[:-1]]])).logits[0, len(prompt) - 1 :]
    return bool(logits.argmax(-1).tolist() == list(output))


def attend_in_float64(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, first_position: int, scores: Scores
) -> torch.Tensor:
    """Attention of one row `[T, Hq, Dv]`, head by head and without blocks."""
    group = query.shape[1] // keys.shape[1]
    distance = first_position + torch.arange(len(query))[:, None] - torch.arange(len(keys))
    unseen = (distance < 0) | (distance >= (scores.sliding_window or len(keys)))
    if scores.chunk is not None:
        places = torch.arange(len(keys)) // scores.chunk
        unseen |= places != ((first_position + torch.arange(len(query))) // scores.chunk)[:, None]
    outputs = []
    for h in range(query.shape[1]):
        products = query[:, h].double() @ keys[:, h // group].double().T * scores.scaling
        if scores.softcap is not None:
            products = scores.softcap * torch.tanh(products / scores.softcap)
        products[unseen] = -torch.inf
        sink = -torch.inf if scores.sinks is None else float(scores.sinks[h])
        weights = torch.cat([products, torch.full((len(query), 1), sink)], dim=1).softmax(1)[:, :-1]
        outputs.append(weights @ values[:, h // group].double())
    return torch.stack(outputs, dim=1)
