"""Through the whole ring, greedy output of a real model is what transformers' own `generate` gives.

float32; 8 concurrent requests of different lengths, prompts cut into chunks and longer than the sliding window, a cache
so small that requests are preempted. A difference is allowed only where the reference's two best logits are closer than
1e-4; such places are counted and printed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from signalbox.client import Client
from tests.e2e.conftest import MODEL, Launch
from tests.e2e.outputs.test_options import workers_of
from tests.worker_svc.runner.reference import is_greedy
from tools.make_random_model import make_model

torch.set_num_threads(1)  # of the reference: the ring has the cores

OUTPUT_TOKENS = 64
LENGTHS = (3, 11, 17, 26, 33, 40, 52, 70)
NEAR = 1e-4
SMALL = ("--dtype", "float32", "--num-blocks", "36", "--block-size", "16", "--max-num-batched-tokens", "48")


class Reference:
    """transformers' eager float32 greedy continuation of prompts, one by one."""

    def __init__(self, model_dir: Path) -> None:
        self._model = transformers.AutoModelForCausalLM.from_pretrained(
            model_dir, dtype=torch.float32, attn_implementation="eager"
        )
        numbers = np.random.default_rng(1)
        vocab = self._model.config.vocab_size
        self.prompts = [numbers.integers(10, vocab, length).tolist() for length in LENGTHS]

    def generate(self, prompt: list[int]) -> list[int]:
        """Greedy output of OUTPUT_TOKENS."""
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            output = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=OUTPUT_TOKENS,
                min_new_tokens=OUTPUT_TOKENS,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )
        return output[0, len(prompt) :].tolist()  # type: ignore[no-any-return]

    def near_ties(self, outputs: list[list[int]]) -> int:
        """Counts the outputs that leave the reference at a near tie; asserts that none leaves it elsewhere."""
        count = 0
        for prompt, output in zip(self.prompts, outputs, strict=True):
            assert len(output) == OUTPUT_TOKENS
            if is_greedy(self._model, prompt, output) or output == (expected := self.generate(prompt)):
                continue
            first = next(i for i in range(OUTPUT_TOKENS) if output[i] != expected[i])
            with torch.inference_mode():
                logits = self._model(torch.tensor([prompt + expected[:first]])).logits[0, -1]
            best = logits.topk(2).values
            assert best[0] - best[1] < NEAR, (
                f"prompt of {len(prompt)} tokens differs at {first}: {best.tolist()}"
            )
            count += 1
        return count


References = Callable[[str], tuple[Path, Reference]]


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> References:
    """A model directory by name, and what transformers makes of it."""

    @cache
    def make(name: str) -> tuple[Path, Reference]:
        model_dir = MODEL if name == "demo" else make_model(name, tmp_path_factory.mktemp(name))
        return model_dir, Reference(model_dir)

    return make


async def generate_all(grpc: str, prompts: list[list[int]]) -> list[list[int]]:
    """All prompts at once."""
    async with Client(grpc) as client:
        streams = [
            client.generate(prompt, max_tokens=OUTPUT_TOKENS, temperature=0, ignore_eos=True)
            for prompt in prompts
        ]
        results = await asyncio.gather(*(stream.result() for stream in streams))
    return [list(result.token_ids) for result in results]


SAMPLED: dict[str, list[list[int]]] = {}
"""By model: what seeded sampling with penalties gave at the first depth that was tried."""


async def sample_all(grpc: str, prompts: list[list[int]]) -> list[list[int]]:
    """Half of the prompts, seeded and with penalties, which look at all output so far."""
    options: dict[str, Any] = {
        "temperature": 0.8,
        "top_p": 0.9,
        "repetition_penalty": 1.3,
        "frequency_penalty": 0.5,
    }
    async with Client(grpc) as client:
        streams = [
            client.generate(prompt, max_tokens=24, ignore_eos=True, seed=number, **options)
            for number, prompt in enumerate(prompts[:4])
        ]
        results = await asyncio.gather(*(stream.result() for stream in streams))
    return [list(result.token_ids) for result in results]


IN_PROCESS = [pytest.param(name, "2", "1", marks=pytest.mark.soak) for name in ("tiny-llama", "tiny-qwen3")]
"""Whose layers are compared without a ring, too; that of the demo model is as theirs."""


@pytest.mark.sampled
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("name", "depth", "num_workers"),
    [
        ("demo", "1", "1"),
        ("demo", "2", "1"),
        ("demo", "4", "1"),
        ("demo", "2", "2"),
        ("tiny-mistral", "2", "1"),
        ("hybrid-qwen3-next", "2", "1"),
        ("hybrid-lfm2", "2", "1"),
        *IN_PROCESS,
    ],
)
async def test_greedy_output_equals_generate(
    launch_ring: Launch, references: References, name: str, depth: str, num_workers: str
) -> None:
    """Y2."""
    model_dir, reference = references(name)
    ring = launch_ring(
        "--no-proof",
        *SMALL, "--max-inflight-steps", depth, "--workers", num_workers, "--model", str(model_dir),
        "--served-model-name", "m",
    )  # fmt: skip
    ring.wait_for("signalbox is up")
    outputs = await generate_all(ring.grpc, reference.prompts)
    ties = reference.near_ties(outputs)
    workers = workers_of(ring)
    preempted = sum(worker["num_preemptions"] for worker in workers)
    print(f"{name}, depth {depth}, {num_workers} workers: {ties} near ties, {preempted} preemptions")
    assert ties <= 1
    assert preempted > 0 or num_workers == "2"
    sampled = await sample_all(ring.grpc, reference.prompts)
    assert SAMPLED.setdefault(name, sampled) == sampled, "penalties and seeds give the same at every depth"


@pytest.mark.timeout(120)
async def test_a_conversation_with_a_hybrid_goes_on_from_its_last_boundary(
    launch_ring: Launch, references: References
) -> None:
    """CK5, CK8. 134 tokens were said, and the state behind 128 of them is there."""
    model_dir, reference = references("hybrid-qwen3-next")
    ring = launch_ring("--no-proof", *SMALL, "--model", str(model_dir), "--served-model-name", "m")
    ring.wait_for("signalbox is up")
    prompt, expected = reference.prompts[-1], reference.generate(reference.prompts[-1])
    async with Client(ring.grpc) as client:
        for said, cached in ((prompt, 0), ([*prompt, *expected], 128)):
            stream = client.generate(said, max_tokens=OUTPUT_TOKENS, temperature=0, ignore_eos=True)
            result = await stream.result()
            assert result.finished.num_cached_tokens == cached
            assert list(result.token_ids) == reference.generate(said)
