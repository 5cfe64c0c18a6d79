"""The torch runner against transformers' own generation, and against itself in other batches."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.worker_svc.runner.reference import (
    OUTPUT_TOKENS,
    assert_greedy,
    generate,
    load_reference,
    make_prompts,
    make_runner,
)
from tests.worker_svc.runner.runner_harness import GARBAGE, GREEDY, Driver, Request
from worker_svc.core.faults.isolation import RunnerBrokenError, execute_isolated
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.runner.cpu.flags import BFLOAT16_CPU_FLAGS, cpu_flags

ModelDir = Callable[[str], Path]
PRESETS = ("tiny-llama", "tiny-qwen3", "tiny-mistral")
SEEDED = SamplingParams(temperature=0.8, top_k=40, top_p=0.95, seed=7)


@pytest.mark.parametrize("block_size", [4, 16])
@pytest.mark.parametrize("preset", PRESETS)
def test_greedy_output_equals_generate(model_dir: ModelDir, preset: str, block_size: int) -> None:
    path = model_dir(preset)
    driver = Driver(make_runner(path, block_size=block_size), seed=block_size)
    requests = [driver.add(prompt, OUTPUT_TOKENS) for prompt in make_prompts()]
    driver.run()
    near_ties = sum(
        assert_greedy(request.output, path, prompt)
        for request, prompt in zip(requests, make_prompts(), strict=True)
    )
    print(f"{preset}, block size {block_size}: {near_ties} near ties in {len(requests)} outputs")
    assert near_ties <= 1
    distinct = np.mean([len(set(request.output)) for request in requests])
    assert distinct > OUTPUT_TOKENS / 2, "the model repeats itself: the comparison proves little"


@pytest.mark.parametrize("preset", PRESETS)
def test_logits_equal_those_of_one_eager_forward(model_dir: ModelDir, preset: str) -> None:
    """A prompt beyond the window and beyond one query tile, in uneven chunks beside a decoding neighbour."""
    path = model_dir(preset)
    runner = make_runner(path)
    driver = Driver(runner)
    neighbour = driver.add(make_prompts()[2], 10)
    driver.step({neighbour.slot: 5})
    prompt = make_prompts((300,))[0]
    request = driver.add(prompt, 1)
    for size in (270, 3, 1):
        driver.step({request.slot: size})
    _, batch = driver.build({request.slot: 26})
    logits = runner.forward(batch)[-1]
    expected = load_reference(path)(torch.tensor([prompt])).logits[0, -1]
    assert (logits - expected).abs().max() < 1e-4


def test_step_without_samples_writes_the_cache(model_dir: ModelDir) -> None:
    path = model_dir("tiny-llama")
    driver = Driver(make_runner(path))
    prompt = make_prompts()[4]
    request = driver.add(prompt, OUTPUT_TOKENS)
    sampled = driver.step({request.slot: 16})
    assert sampled.token_ids.shape == (0,)
    driver.run()
    assert assert_greedy(request.output, path, prompt) == 0


def output_with_drafts(
    path: Path, params: SamplingParams, drafts: Callable[[Request], list[int]]
) -> list[int]:
    """Output of one request among two others, when each of its decode steps carries `drafts` of it."""
    driver = Driver(make_runner(path))
    prompts = make_prompts((9, 20, 33))
    requests = [driver.add(prompt, OUTPUT_TOKENS + 4, params) for prompt in prompts]
    driver.step({request.slot: request.num_prompt for request in requests})
    while len(requests[1].output) < OUTPUT_TOKENS:
        requests[1].drafts = drafts(requests[1])
        driver.step({})
    return requests[1].output[:OUTPUT_TOKENS]


@pytest.mark.parametrize("params", [GREEDY, SEEDED])
def test_drafts_do_not_change_the_output(model_dir: ModelDir, params: SamplingParams) -> None:
    path = model_dir("tiny-mistral")
    plain = output_with_drafts(path, params, lambda request: [])

    def half_right(request: Request) -> list[int]:
        done = len(request.output)
        return [*plain[done : done + 2], 5][:3]

    assert output_with_drafts(path, params, half_right) == plain
    assert output_with_drafts(path, params, lambda request: [3, 4, 5, 6]) == plain


@pytest.mark.parametrize("params", [GREEDY, SEEDED])
def test_bad_words_stay_out_with_and_without_drafts(model_dir: ModelDir, params: SamplingParams) -> None:
    """Sequences that the free output contains do not come any more, and the output is the same with drafts."""
    path = model_dir("tiny-mistral")
    free = output_with_drafts(path, params, lambda request: [])
    bad = ((free[4],), (free[7], free[8]), (free[10], free[11], free[12]))
    careful = replace(params, bad_token_sequences=bad)
    plain = output_with_drafts(path, careful, lambda request: [])
    assert plain != free
    for sequence in bad:
        assert not any(tuple(plain[i : i + len(sequence)]) == sequence for i in range(len(plain)))

    def half_right(request: Request) -> list[int]:
        done = len(request.output)
        return [*plain[done : done + 2], *free[done + 2 : done + 3]]

    assert output_with_drafts(path, careful, half_right) == plain
    assert output_with_drafts(path, careful, lambda request: free[len(request.output) :][:4]) == plain


def test_choices_of_one_prompt_differ_and_come_again(model_dir: ModelDir) -> None:
    """`n` choices are requests that differ in choice_index alone."""
    runner = make_runner(model_dir("tiny-qwen3"))
    prompt = make_prompts()[5]

    def outputs(choices: list[int]) -> list[list[int]]:
        driver = Driver(runner, seed=len(choices))
        for choice in choices:
            driver.add(prompt, OUTPUT_TOKENS, SamplingParams(seed=3, choice_index=choice))
        driver.run()
        return [request.output for request in driver.requests]

    together = outputs([0, 1, 2, 3])
    assert len({tuple(output) for output in together}) == 4
    assert outputs([2, 0]) == [together[2], together[0]]


def test_seeded_output_is_the_same_alone_and_in_a_batch(model_dir: ModelDir) -> None:
    runner = make_runner(model_dir("tiny-qwen3"))
    alone = Driver(runner)
    request = alone.add(make_prompts()[5], OUTPUT_TOKENS, SEEDED)
    alone.run(chunk_size=50)
    together = Driver(runner, seed=1)
    for prompt in make_prompts():
        together.add(prompt, OUTPUT_TOKENS, SEEDED)
    together.run()
    assert together.requests[5].output == request.output
    assert len(set(request.output)) > 1


def test_thread_limit_holds_in_the_thread_that_executes(model_dir: ModelDir) -> None:
    driver = Driver(make_runner(model_dir("tiny-llama"), threads=1))
    request = driver.add(make_prompts()[3], 4)

    def step() -> int:
        driver.step({request.slot: request.num_prompt})
        return torch.get_num_threads()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(step).result() == 1


def test_rows_of_a_batch_can_run_one_after_the_other(model_dir: ModelDir) -> None:
    driver = Driver(make_runner(model_dir("tiny-llama")))
    requests = [driver.add(prompt, OUTPUT_TOKENS) for prompt in make_prompts()]
    driver.step({request.slot: request.num_prompt for request in requests[:5]})
    _, batch = driver.build({request.slot: request.num_prompt for request in requests[5:]})
    whole = driver.runner.execute(batch).token_ids
    parts = [driver.runner.execute(batch.rows(i, i + 1)).token_ids for i in range(len(requests))]
    assert np.array_equal(np.concatenate(parts), whole)


@pytest.mark.skipif(not BFLOAT16_CPU_FLAGS & cpu_flags(), reason="bfloat16 is emulated on this CPU")
@pytest.mark.parametrize("preset", PRESETS)
def test_bfloat16_logits_do_not_depend_on_the_batch(model_dir: ModelDir, preset: str) -> None:
    """Bit for bit, on the CPUs where bfloat16 is the default; a property of the CPU's matrix routines."""
    runner = make_runner(model_dir(preset), dtype="bfloat16")
    driver = Driver(runner)
    requests = [driver.add(prompt, OUTPUT_TOKENS) for prompt in make_prompts()]
    driver.step({request.slot: request.num_prompt for request in requests})
    driver.step({})
    _, batch = driver.build({})
    together = runner.forward(batch)
    for i in range(len(requests)):
        assert torch.equal(runner.forward(batch.rows(i, i + 1))[0], together[i])


def test_logprobs_are_those_of_the_reference(model_dir: ModelDir) -> None:
    path = model_dir("tiny-llama")
    driver = Driver(make_runner(path))
    prompt = make_prompts()[3]
    request = driver.add(prompt, 1, SamplingParams(temperature=0.0, num_logprobs=3))
    sampled = driver.step({request.slot: len(prompt)})
    expected, logits = generate(path, tuple(prompt))
    best = logits[0].log_softmax(-1).topk(3)
    assert sampled.logprobs[0].top_token_ids == best.indices.tolist()
    assert sampled.logprobs[0].top_logprobs == pytest.approx(best.values.tolist(), abs=1e-4)
    assert sampled.logprobs[0].logprob == pytest.approx(float(best.values[0]), abs=1e-4)
    assert (sampled.logprobs[0].rank, sampled.token_ids[0]) == (1, expected[0])


def test_a_check_takes_no_block_from_anybody(model_dir: ModelDir) -> None:
    runner = make_runner(model_dir("tiny-llama"))
    before = [layer.keys.fill_(GARBAGE).clone() for layer in runner._cache.layers]
    runner.check()
    assert all(
        torch.equal(layer.keys, keys) for layer, keys in zip(runner._cache.layers, before, strict=True)
    )


def test_a_check_shows_a_model_that_fails_on_everything(model_dir: ModelDir) -> None:
    runner = make_runner(model_dir("tiny-llama"))
    runner.model.module.lm_head = torch.nn.Linear(3, 5)
    driver = Driver(runner)
    requests = [driver.add(prompt, 2) for prompt in make_prompts((9, 20))]
    _, batch = driver.build({request.slot: 9 for request in requests})
    with pytest.raises(RunnerBrokenError, match="single token"):
        execute_isolated(runner, batch)
