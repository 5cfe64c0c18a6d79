"""Prompts go on from checkpoints of recurrent states: outputs are those of prompts that were computed whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from signalbox.v1 import generation_pb2
from tests.pairs import every_other
from tests.worker_svc.drafting.local_ring import LocalRing
from tests.worker_svc.runner.reference import assert_greedy, load_reference, make_prompts, make_runner
from tests.worker_svc.runner.runner_harness import GARBAGE
from tools.hybrid_families import HYBRID_PRESETS
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.recurrent import making

ModelDir = Callable[[str], Path]
PRESET = "hybrid-qwen3-5"
NUM_TOKENS = 70
"""Each output passes a boundary."""
TOLERANCE = 2e-4
"""Of log-probabilities and vectors, in float32."""


def ring_of(path: Path, num_blocks: int, side_copy_blocks: int = 0, **settings: int) -> LocalRing:
    runner = make_runner(path, num_blocks=num_blocks, num_slots=12, **settings)
    assert runner._states is not None and runner.info.state_group is not None
    runner._states.fill(GARBAGE)
    return LocalRing(runner, None, num_seqs=4, side_copy_blocks=side_copy_blocks)


def run(ring: LocalRing, prompts: list[list[int]]) -> list[list[int]]:
    clients = [ring.submit(prompt, NUM_TOKENS) for prompt in prompts]
    ring.run()
    if ring.worker.checkpoints is not None:
        pool = ring.worker.checkpoints.pool
        assert pool.num_available == pool.num_blocks, "checkpoints are left behind"
    return [client.output for client in clients]


def check(path: Path, ring: LocalRing, prompts: list[list[int]]) -> list[list[int]]:
    outputs = run(ring, prompts)
    for output, prompt in zip(outputs, prompts, strict=True):
        assert_greedy(output, path, prompt, NUM_TOKENS)
    return outputs


@pytest.mark.parametrize("preset", ["hybrid-lfm2", "hybrid-qwen3-5"])
def test_outputs_are_the_same_where_prompts_alone_leave_checkpoints(model_dir: ModelDir, preset: str) -> None:
    """CK11. The second turn goes on from the end of the first one's prompt, not from its end."""
    path = model_dir(preset)
    runner = make_runner(path, num_blocks=600, num_slots=12)
    assert runner.info.state_group is not None
    runner.info = replace(runner.info, state_group=replace(runner.info.state_group, prompts_only=True))
    ring = LocalRing(runner, None, num_seqs=4)
    first = make_prompts((70, 140))
    outputs = check(path, ring, first)
    assert not ring.worker.stats.num_prefix_hit_tokens
    plain = LocalRing(make_runner(path, num_blocks=600, num_slots=12, num_checkpoints=0), None, num_seqs=4)
    second = [[*prompt, *output, 7, 8, 9] for prompt, output in zip(first, outputs, strict=True)]
    assert run(ring, second) == run(plain, second)
    assert ring.worker.stats.num_prefix_hit_tokens == 64 + 128


@pytest.mark.sampled
@pytest.mark.parametrize("preset", HYBRID_PRESETS)
def test_conversations_and_preemptions_go_on_from_checkpoints(model_dir: ModelDir, preset: str) -> None:
    """CK2, CK5, CK6. Float32, chunks, memory for half of the requests; the second turn begins where the first ended,
    and is what it is without checkpoints. (Not `generate` there: of three families that choose experts a near tie of
    the choice goes the other way in chunks, with checkpoints or without.)"""
    path = model_dir(preset)
    ring = ring_of(path, num_blocks=88)
    system = make_prompts((130,))[0]
    first = [[*system, *own] for own in make_prompts((40, 9, 75, 33))]
    outputs = check(path, ring, first)
    stats = ring.worker.stats
    assert stats.num_preemptions >= 4 and stats.num_prefix_hit_tokens
    before = stats.num_prefix_hit_tokens
    second = [[*prompt, *output, 7, 8, 9] for prompt, output in zip(first, outputs, strict=True)]
    plain = LocalRing(make_runner(path, num_blocks=600, num_slots=12, num_checkpoints=0), None, num_seqs=4)
    assert run(ring, second[:2]) == run(plain, second)[:2]
    assert stats.num_prefix_hit_tokens - before >= 2 * 192


def test_the_longest_of_two_prefixes_is_gone_on_from(model_dir: ModelDir) -> None:
    """CK4, CK5: of all that begin alike the first computes it, and the others wait for the state where they part."""
    path = model_dir(PRESET)
    ring = ring_of(path, num_blocks=600)
    system = make_prompts((140,))[0]
    check(path, ring, [[*system, *own] for own in make_prompts((20, 21, 22, 23))])
    stats = ring.worker.stats
    assert (stats.num_prefix_hit_tokens, stats.num_prefill_tokens) == (3 * 128, 4 * 140 + 86 - 3 * 128)


@pytest.mark.sampled
@pytest.mark.parametrize(("preset", "side_copy_blocks"), every_other(HYBRID_PRESETS, (0, 2)))
def test_checkpoints_come_back_from_the_host_tier(
    model_dir: ModelDir, preset: str, side_copy_blocks: int
) -> None:
    """X13, CK5: a device with few places gives states and blocks away, and prompts that come again go on from what the
    host tier has of them."""
    path = model_dir(preset)
    host = {"num_host_blocks": 600, "mean_request_tokens": 128}
    ring = ring_of(path, num_blocks=88, num_checkpoints=3, side_copy_blocks=side_copy_blocks, **host)
    prompts = make_prompts((140, 90, 75, 70, 129))
    first = check(path, ring, prompts)
    stats = ring.worker.stats
    before = stats.num_prefix_hit_tokens
    plain = LocalRing(make_runner(path, num_blocks=600, num_slots=12, num_checkpoints=0), None, num_seqs=4)
    assert run(ring, prompts) == run(plain, prompts) == first
    assert stats.num_preemptions and stats.num_host_hit_tokens >= 128 + 3 * 64
    assert stats.num_prefix_hit_tokens - before >= 128 + 4 * 64
    assert len(ring.worker.hosts[-1]) > 3, "more states are kept than the device has places for"


@pytest.mark.sampled
@pytest.mark.parametrize("preset", ["hybrid-qwen3-5", "hybrid-granite", "hybrid-kimi-linear", "hybrid-lfm2"])
def test_what_needs_every_position_goes_on_from_no_checkpoint(model_dir: ModelDir, preset: str) -> None:
    """C5, CK5: log-probabilities of a prompt and vectors are of all positions, beside others that go on from what is
    kept of the same prompt; and what they compute is gone on from in turn."""
    path, prompt = model_dir(preset), make_prompts((150,))[0]
    ring = ring_of(path, num_blocks=300)
    check(path, ring, [prompt])
    stats = ring.worker.stats
    assert not stats.num_prefix_hit_tokens
    wants = generation_pb2.SamplingParams(temperature=0.0, prompt_logprobs=0)
    mean = generation_pb2.PoolingParams(mode=generation_pb2.POOLING_MODE_MEAN, raw=True)
    read = ring.submit(prompt, NUM_TOKENS, wants)
    pooled = ring.submit(prompt, 0, pooling=mean)
    plain = ring.submit(prompt, NUM_TOKENS)
    ring.run()
    assert stats.num_prefix_hit_tokens == 128, "one of three goes on from the checkpoint at 128"
    model, ids = load_reference(path), torch.tensor([prompt])
    with torch.inference_mode():
        expected = model(ids, output_hidden_states=True)
    wanted = expected.logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    assert (torch.tensor(read.prompt_logprobs) - wanted).abs().max() < TOLERANCE
    assert (torch.tensor(pooled.vector) - expected.hidden_states[-1][0].mean(0)).abs().max() < TOLERANCE
    for client in (read, plain):
        assert_greedy(client.output, path, prompt, NUM_TOKENS)


def test_one_checkpoint_is_enough_to_be_right(model_dir: ModelDir) -> None:
    """CK7. It is always another's."""
    path = model_dir(PRESET)
    ring = ring_of(path, num_blocks=150, num_checkpoints=1)
    check(path, ring, make_prompts((140, 90, 75, 70, 129)))


def test_without_checkpoints_prompts_begin_at_their_first_token(model_dir: ModelDir) -> None:
    """SG7."""
    runner = make_runner(model_dir(PRESET), num_blocks=150, num_checkpoints=0)
    assert runner.info.state_group is None
    ring = LocalRing(runner, None, num_seqs=4)
    ring.submit(make_prompts((140,))[0], 4)
    ring.run()
    assert ring.worker.checkpoints is None and not ring.worker.stats.num_prefix_hit_tokens


def test_more_checkpoints_than_memory_holds_are_refused() -> None:
    """SG8. Where nobody says how many, there are as many as have room."""
    with pytest.raises(ModelLoadError, match=r"num_checkpoints is 5: .* of 3 requests, enough for 4"):
        making.checkpoints_that_fit(5, 3, 10, 49)
    assert making.checkpoints_that_fit(4, 3, 10, 49) == 4
    assert making.checkpoints_that_fit(None, 3, 10, 49) == 0
    assert making.checkpoints_that_fit(None, 3, 10, 10**6) == 6
    assert making.checkpoints_that_fit(None, 3, 10, -5) == 0
