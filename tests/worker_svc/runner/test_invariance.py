"""Which logits are the same bit for bit on the CPU, whatever else runs: what docs/performance.md states.

In bfloat16 with the dot product, where all products and the attention are our own kernels; in float32 on oneDNN.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, Qwen3Config

from tests.worker_svc.runner.reference import make_prompts, make_runner
from tests.worker_svc.runner.runner_harness import Driver, Request
from worker_svc.core.batch import Sampled
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.sampling.sampler import sample
from worker_svc.runner.torch_runner import TorchRunner

LONG, SHORT = make_prompts((120, 37))


@pytest.fixture(scope="module", params=["bfloat16", "float32"])
def runner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TorchRunner:
    kernels = native_kernels()
    if request.param == "bfloat16" and (kernels is None or not kernels.has_dot):
        pytest.skip("this machine has no bfloat16 dot product")
    path: Path = tmp_path_factory.mktemp("invariance")
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=192,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
    )
    module = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, request.param))
    for parameter in module.parameters():
        nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.15)
    module.save_pretrained(path)
    return make_runner(path, dtype=request.param, block_size=16)


class Recording(Driver):
    """Keeps the logits at each request's output positions, by slot."""

    def __init__(self, runner: TorchRunner, seed: int = 0) -> None:
        super().__init__(runner, seed=seed)
        self.logits: dict[int, list[torch.Tensor]] = {}

    def step(self, chunks: dict[int, int]) -> Sampled:
        rows, batch = self.build(chunks)
        self.states.take(batch)
        made = self.runner.forward(batch)
        self.states.commit(batch, ())
        for row, logits in zip(batch.sample_rows.tolist(), made, strict=True):
            self.logits.setdefault(rows[row][0].slot, []).append(logits.clone())
        sampled = sample(made, batch)
        self._apply(rows, batch, sampled)
        return sampled


def is_same(ours: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours, others, strict=True))


def run_in_chunks(
    runner: TorchRunner, sizes: list[int], company: int = 0, seed: int = 0
) -> list[torch.Tensor]:
    """Logits of LONG's first four output tokens, its prompt in chunks; beside `company` other requests."""
    driver = Recording(runner, seed)
    others: list[Request] = [driver.add(SHORT, 40) for _ in range(company)]
    request = driver.add(LONG, 4)
    if others:
        driver.step({other.slot: len(SHORT) for other in others})
    for size in sizes:
        driver.step({request.slot: size})
    for _ in range(3):
        driver.step({})
    return driver.logits[request.slot]


def test_the_company_does_not_matter(runner: TorchRunner) -> None:
    """Y2."""
    alone = run_in_chunks(runner, [120])
    for company in (1, 2, 7):
        assert is_same(run_in_chunks(runner, [120], company, seed=company), alone)


def test_where_a_prompt_is_cut_does_not_matter(runner: TorchRunner) -> None:
    """Y2: in bfloat16, as far as into single tokens, such as the last one of a prompt that is in the cache."""
    if runner.model.dtype == torch.float32:
        pytest.skip("prompts take torch's attention in float32, whose sums follow the chunk")
    whole = run_in_chunks(runner, [120])
    for sizes in ([60, 60], [16, 104], [33, 50, 37], [16] * 6 + [24], [112, 8], [119, 1], [1, 2, 3, 4] * 12):
        assert is_same(run_in_chunks(runner, sizes), whole)


def test_one_token_and_drafts_are_the_same(runner: TorchRunner) -> None:
    """Y2: M = 1 against M = K + 1: the logits at a position whether it ran alone or behind others of its request."""
    one_by_one = Recording(runner)
    request = one_by_one.add(LONG, 6)
    one_by_one.step({request.slot: 120})
    for _ in range(5):
        one_by_one.step({})
    output = list(request.output)
    drafted = Recording(runner, seed=3)
    same = drafted.add(LONG, 6)
    drafted.step({same.slot: 120})
    same.drafts = output[1:5]
    drafted.step({})
    assert same.output == output
    ours, theirs = drafted.logits[same.slot], one_by_one.logits[request.slot]
    if runner.model.dtype == torch.bfloat16:
        assert is_same(ours, theirs)
    else:
        assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(ours, theirs, strict=True))


def recompute(
    runner: TorchRunner, num_outputs: int, sizes: list[int], *, are_outputs: bool
) -> list[torch.Tensor]:
    """Logits behind the last output as it was decoded, and as it comes of chunks of a resumed request, or of one whose
    prompt has the outputs."""
    decoded = Recording(runner)
    request = decoded.add(SHORT, num_outputs)
    decoded.step({request.slot: len(SHORT)})
    for _ in range(num_outputs - 1):
        decoded.step({})
    again = Recording(runner, seed=1)
    resumed = again.add(SHORT + request.output[:-1], num_outputs)
    if are_outputs:
        resumed.num_prompt = len(SHORT)
    for size in sizes:
        again.step({resumed.slot: size})
    return [decoded.logits[request.slot][-1], again.logits[resumed.slot][0]]


@pytest.mark.parametrize("sizes", [[56], [37, 19], [37, 12, 7], [30, 26], [55, 1]], ids=str)
def test_recomputing_outputs_is_the_same(runner: TorchRunner, sizes: list[int]) -> None:
    """Y2: a request goes on with the same bits where its KV is computed again, at once or in parts."""
    decoded, recomputed = recompute(runner, 20, sizes, are_outputs=True)
    if runner.model.dtype == torch.bfloat16:
        assert torch.equal(decoded, recomputed)
    else:
        assert torch.allclose(decoded, recomputed, atol=1e-4)


def test_what_was_an_output_is_the_same_as_a_prompt_up_to_rounding(runner: TorchRunner) -> None:
    """Y2: an answer that is a part of the next prompt, and not in the cache any more."""
    decoded, computed = (each.float() for each in recompute(runner, 20, [56], are_outputs=False))
    error = float((decoded - computed).square().mean().sqrt() / decoded.std())
    print(f"{runner.model.dtype}: relative error of a position that was decoded before {error:.2g}")
    assert error < (0.03 if runner.model.dtype == torch.bfloat16 else 1e-4)


def run_all(
    runner: TorchRunner, prompts: list[list[int]], chunk_size: int, preemptions: int
) -> dict[int, tuple[list[int], list[torch.Tensor]]]:
    """Outputs of 40 tokens with their logits, by length of the prompt; chunks have random sizes up to `chunk_size`."""
    driver = Recording(runner, seed=preemptions)
    requests = [driver.add(prompt, 40) for prompt in prompts]
    driver.run(chunk_size, preemptions)
    return {each.num_prompt: (each.output, driver.logits[each.slot]) for each in requests}


@pytest.mark.parametrize("chunk_size", [7, 60])
def test_preempted_requests_go_on_with_the_same_bits(runner: TorchRunner, chunk_size: int) -> None:
    """Y2: whatever is computed again, in whatever pieces."""
    if runner.model.dtype == torch.float32:
        pytest.skip("prompts take torch's attention in float32, whose sums follow the chunk")
    prompts = [LONG[: 10 + 17 * number] for number in range(6)]
    undisturbed, preempted = (run_all(runner, prompts, chunk_size, count) for count in (0, 5))
    for length, (output, logits) in undisturbed.items():
        assert preempted[length][0] == output
        assert is_same(preempted[length][1], logits)
