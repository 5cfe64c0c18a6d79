"""A model that is divided among two ranks gives the tokens that it gives in one process (RK1, RK6, RK7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from signalbox.v1 import generation_pb2
from tests.worker_svc.drafting.local_ring import Client, LocalRing
from tests.worker_svc.ranks.groups import Groups, group, kept_groups, settings_for
from tests.worker_svc.runner.reference import EPSILON, assert_near_the_best, load_reference, make_prompts
from tools.make_random_model import make_model
from worker_svc.core.batch import ModelRunner
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.cpu.decoder import FusedDecoder
from worker_svc.runner.torch_runner import TorchRunner
from worker_svc.runner_factory import make_runner as make_any_runner

pytestmark = pytest.mark.timeout(300)
NUM_TOKENS = 24
DRAWN = generation_pb2.SamplingParams(temperature=0.8, seed=7, top_k=40)
SCORED = generation_pb2.SamplingParams(temperature=0.0, prompt_logprobs=2, logprobs=2)
Preset = Callable[[str], Path]


@pytest.fixture(scope="module")
def preset(tmp_path_factory: pytest.TempPathFactory) -> Preset:
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            made[name] = make_model(name, tmp_path_factory.mktemp(name), seed=1)
        return made[name]

    return get


@pytest.fixture(scope="module")
def groups() -> Iterator[Groups]:
    with kept_groups() as get:
        yield get


def play(runner: ModelRunner, drafter: Drafter | None, depth: int, num_drafts: int) -> list[Client]:
    """Greedy, drawn and scored requests with a common beginning, more than have room at once."""
    ring = LocalRing(runner, drafter, depth=depth, num_drafts=num_drafts, num_seqs=6)
    prompts = make_prompts((5, 17, 31, 40, 12, 26))
    common = prompts[3][:24]
    clients = [ring.submit(prompt, NUM_TOKENS) for prompt in prompts[:2]]
    clients += [ring.submit(common + prompt, NUM_TOKENS) for prompt in prompts[2:4]]
    clients.append(ring.submit(prompts[4], NUM_TOKENS, DRAWN))
    clients.append(ring.submit(prompts[5], NUM_TOKENS, SCORED))
    ring.run()
    ring.submit(common + prompts[4], NUM_TOKENS)  # from the cache, if it may
    ring.run()
    return clients


def alone(path: Path, **settings: Any) -> tuple[ModelRunner, Drafter | None]:
    return make_any_runner(settings_for(path, **({"tensor_parallel": 1} | settings)))


MATRIX = [
    ("tiny-llama", 2, 0, {"num_blocks": 36}),
    ("tiny-qwen3-moe", 1, 4, {"num_blocks": 36, "speculative": "ngram:4"}),
    ("tiny-gemma3", 2, 4, {"num_blocks": 36, "speculative": "ngram:4", "num_host_blocks": 64}),
    pytest.param("tiny-gpt-oss", 4, 0, {"num_host_blocks": 64, "num_blocks": 36}, marks=pytest.mark.soak),
    ("tiny-olmo2", 2, 0, {"collectives": "gloo"}),
    ("hybrid-qwen3-next", 2, 4, {"speculative": "ngram:4"}),
    pytest.param("tiny-deepseek-v3", 1, 0, {"num_blocks": 36}, marks=pytest.mark.soak),
    pytest.param("tiny-mixtral", 2, 0, {"tensor_parallel": 4}, marks=pytest.mark.soak),
]


@pytest.mark.parametrize(("name", "depth", "num_drafts", "settings"), MATRIX)
def test_tokens_of_two_ranks_are_those_of_one(
    preset: Preset, groups: Groups, name: str, depth: int, num_drafts: int, settings: dict[str, Any]
) -> None:
    path = preset(name)
    wanted = play(*alone(path, **(settings | {"tensor_parallel": 1})), depth, num_drafts)
    clients = play(*groups(path, **settings), depth, num_drafts)
    assert_as_alone(path, clients, wanted, gives_way="num_blocks" in settings)


def assert_as_alone(path: Path, clients: list[Client], wanted: list[Client], *, gives_way: bool) -> None:
    """Of what was played: drawn tokens and log-probabilities of one process, greedy tokens of transformers."""
    if gives_way:
        assert sum(len(client.preempted_at) for client in clients), "nobody gave way"
    assert clients[4].output == wanted[4].output
    assert clients[5].prompt_logprobs == pytest.approx(wanted[5].prompt_logprobs, abs=1e-3)
    reference = load_reference(path)
    ties = sum(
        assert_near_the_best(reference, client.prompt, client.output, EPSILON)
        for client in (*clients[:4], clients[5])
    )
    assert ties <= 1


def test_each_rank_has_its_part_alone(preset: Preset, groups: Groups) -> None:
    """RK6, RK8: weights and KV of half the heads and columns, in as many blocks."""
    path, settings = preset("tiny-llama"), {"num_blocks": 36}
    whole, _ = alone(path, **settings)
    runner, _ = groups(path, **settings)
    assert isinstance(whole, TorchRunner)
    assert runner.model.layer_shapes[0].elements * 2 == whole.model.layer_shapes[0].elements
    assert runner.info.identity.form != whole.info.identity.form
    assert runner.info.num_blocks == whole.info.num_blocks


@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        ("tiny-llama", "int8"),
        ("tiny-qwen3-moe", "int4"),
        pytest.param("tiny-gpt-oss", "int8", marks=pytest.mark.soak),
    ],
)
def test_whole_numbers_are_divided_as_they_are(preset: Preset, name: str, quantization: str) -> None:
    """RK6: rounded in groups that no cut goes through, each rank has codes of the whole model's."""
    path, settings = preset(name), {"quantization": quantization}
    one, _ = alone(path, **settings)
    wanted = play(one, None, 1, 0)
    with group(path, **settings) as (runner, _):
        clients = play(runner, None, 1, 0)
        assert isinstance(one, TorchRunner)
        # Experts so narrow that a cut goes through a group become numbers.
        assert one.model.num_kept // 2 < runner.model.num_kept <= one.model.num_kept
    got, expected = clients[5].prompt_logprobs, wanted[5].prompt_logprobs
    # What was not rounded at a rank is off by what rounding costs.
    assert got == pytest.approx(expected, abs=0.02 if runner.model.num_kept == one.model.num_kept else 0.15)
    same = sum(mine.output[:4] == theirs.output[:4] for mine, theirs in zip(clients, wanted, strict=True))
    assert same >= len(clients) - (1 if runner.model.num_kept == one.model.num_kept else 3)


def test_ranks_sum_within_the_call_of_all_layers(tmp_path: Path) -> None:
    """RK2: where one process computes all layers in a call, so does each rank: the kernel waits for the others."""
    kernels = native_kernels()
    if kernels is None or not kernels.has_dot:
        pytest.skip("this CPU has no bfloat16 dot product")
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=192,
        intermediate_size=192,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=32,
        max_position_embeddings=256,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    settings = {"dtype": "bfloat16", "block_size": 16}
    one, _ = alone(tmp_path, **settings)
    wanted = play(one, None, 2, 0)
    with group(tmp_path, **settings) as (runner, _):
        clients = play(runner, None, 2, 0)
        vector = embed(runner)
        assert any(isinstance(part, FusedDecoder) for part in runner.model.module.modules())
        assert runner.ranks.seconds > 0
    assert clients[5].prompt_logprobs == pytest.approx(wanted[5].prompt_logprobs, abs=0.05)
    assert vector == pytest.approx(embed(one), abs=0.05)


def embed(runner: ModelRunner) -> list[float]:
    """The vector of a prompt, beside one that generates."""
    ring = LocalRing(runner, None, depth=1, num_seqs=4)
    prompts = make_prompts((17, 31))
    pooling = generation_pb2.PoolingParams(task=generation_pb2.MODEL_TASK_EMBED)
    client = ring.submit(prompts[0], 0, pooling=pooling)
    ring.submit(prompts[1], 4)
    ring.run()
    return client.vector
