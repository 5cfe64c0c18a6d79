"""Triton's kernels on the part of a model that a rank has: tokens are those of one process (RK19)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from signalbox.v1 import generation_pb2
from tests.worker_svc.drafting.local_ring import Client, LocalRing
from tests.worker_svc.ranks.groups import group
from tests.worker_svc.ranks.test_group_tokens import alone
from tests.worker_svc.runner.reference import EPSILON, assert_near_the_best, load_reference, make_prompts
from tools.make_random_model import fill_weights, make_model
from worker_svc.core.batch import ModelRunner
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.runner.triton.batch import TritonBatch
from worker_svc.runner.triton.fused import TritonAttention

COUNT = 9
DRAWN = generation_pb2.SamplingParams(temperature=0.8, seed=7, top_k=40)
RANKS, STAGES = {"tensor_parallel": 2}, {"tensor_parallel": 1, "pipeline_parallel": 2}
SCARCE = {"num_blocks": 11, "max_model_len": 48}
DRAFTS = {"speculative": "ngram:3"}
MATRIX = [
    ("one-kv-head", 0, {"num_host_blocks": 16, **SCARCE, **RANKS}),
    ("tiny-gemma3", 3, {**SCARCE, **DRAFTS, **STAGES}),
    pytest.param("tiny-gemma3", 3, {**SCARCE, **DRAFTS, **RANKS}, marks=pytest.mark.soak),
]


def make_one_kv_head(out_dir: Path) -> Path:
    """A model whose only KV head both ranks have."""
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=96,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=256,
    )
    model = LlamaForCausalLM(config)
    fill_weights(model, torch.Generator().manual_seed(0))
    model.save_pretrained(out_dir)
    return out_dir


def play(runner: ModelRunner, drafter: Drafter | None, num_drafts: int) -> list[Client]:
    """Two greedy requests, of which one says the same again, so that drafts are found; and one that is drawn. More than
    have room at once, and longer than a window."""
    ring = LocalRing(runner, drafter, depth=2, num_drafts=num_drafts, num_seqs=3)
    short, long, drawn = make_prompts((7, 11, 19))
    clients = [ring.submit(short * 2, COUNT), ring.submit(long + long[:9], COUNT)]
    clients.append(ring.submit(drawn, COUNT, DRAWN))
    ring.run()
    return clients


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "num_drafts", "settings"), MATRIX)
def test_tokens_of_a_group_are_those_of_one_process(
    name: str, num_drafts: int, settings: dict[str, Any], tmp_path: Path
) -> None:
    """RK19: heads that ranks share, windows in blocks of their own, drafts, preemptions, a host tier."""
    path = make_one_kv_head(tmp_path) if name == "one-kv-head" else make_model(name, tmp_path, seed=1)
    whole = {key: value for key, value in settings.items() if not key.endswith("parallel")}
    wanted = play(*alone(path, **whole), num_drafts)
    with group(path, attention="triton", **settings) as (runner, drafter):
        clients = play(runner, drafter, num_drafts)
        assert runner.batch_class is TritonBatch
        assert any(isinstance(part, TritonAttention) for part in runner.model.module.modules())
    assert any(client.preempted_at for client in clients), "nobody gave way"
    assert clients[2].output == wanted[2].output
    reference = load_reference(path)
    ties = [assert_near_the_best(reference, each.prompt, each.output, EPSILON) for each in clients[:2]]
    assert sum(ties) <= 1
