"""A model whose layers are at two stages gives the tokens that it gives in one process (RK12 to RK15)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker_svc.drafting.local_ring import LocalRing
from tests.worker_svc.drafting.test_constrained_output import (
    CACHES,
    DEMO_MODEL,
    DRAWS,
    METHODS,
    Bench,
    Outputs,
    outputs_without_drafts,
    play_all,
)
from tests.worker_svc.ranks.groups import Groups, assert_transformers_own, group, settings_for
from tests.worker_svc.ranks.test_group_tokens import alone, assert_as_alone, embed, groups, play, preset
from tests.worker_svc.runner.reference import make_prompts
from tools.make_random_model import PRESETS, make_model
from worker_svc.ranks.pipeline import PipelineRunner
from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.cpu.decoder import FusedDecoder
from worker_svc.runner.split.stage import STAGED, Stage, even_ranges, no_cuts
from worker_svc.runner.torch_runner import TorchRunner
from worker_svc.runner_factory import make_runner

__all__ = ["groups", "preset"]
pytestmark = pytest.mark.timeout(300)
TWO = {"tensor_parallel": 1, "pipeline_parallel": 2}
GEMMA = {"num_blocks": 36, "speculative": "ngram:4", "num_host_blocks": 64}
"""Of a group that is asked for by several tests."""
SOME = {
    "tiny-phi3",
    "tiny-llama4",
    "tiny-cohere2",
    "hybrid-kimi-linear",
    "hybrid-nemotron-h",
    "tiny-gemma4-shared",
}
MATRIX = [
    pytest.param("tiny-llama", 2, 0, {"num_blocks": 36}, marks=pytest.mark.soak),
    ("tiny-qwen3-moe", 1, 4, {"num_blocks": 36, "speculative": "ngram:4"}),
    ("tiny-gemma3", 2, 4, GEMMA),
    ("tiny-gpt-oss", 4, 0, {"num_blocks": 36, "num_host_blocks": 64}),
    ("tiny-llama", 2, 4, {"speculative": "ngram:4", "tensor_parallel": 2}),
    pytest.param("tiny-deepseek-v3", 2, 0, {"num_blocks": 36}, marks=pytest.mark.soak),
    pytest.param("tiny-mixtral", 4, 4, {"speculative": "ngram:4", "num_blocks": 36}, marks=pytest.mark.soak),
    pytest.param("tiny-olmo2", 1, 0, {"tensor_parallel": 2, "collectives": "gloo"}, marks=pytest.mark.soak),
    pytest.param("tiny-llama4", 2, 0, {"num_blocks": 36, "num_host_blocks": 64}, marks=pytest.mark.soak),
    ("tiny-gemma4-shared", 2, 4, {"speculative": "ngram:4", "num_blocks": 36, "num_host_blocks": 64}),
    pytest.param("tiny-gemma4-moe", 4, 0, {"num_blocks": 36, "pipeline_parallel": 3}, marks=pytest.mark.soak),
    pytest.param("tiny-phi3", 4, 4, {"speculative": "ngram:4", "num_blocks": 36}, marks=pytest.mark.soak),
]


def family_of(preset_name: str) -> str:
    config_class, settings = PRESETS[preset_name]
    return str(config_class(**settings).model_type)


@pytest.mark.parametrize(
    "name",
    [
        name if name in SOME else pytest.param(name, marks=pytest.mark.soak)
        for name in PRESETS
        if family_of(name) in STAGED and name.startswith(("tiny", "hybrid"))
    ],
)
def test_greedy_tokens_of_two_stages_are_transformers_own(name: str, tmp_path: Path) -> None:
    """RK12: every family that is said to be served so."""
    path = make_model(name, tmp_path, seed=1)
    with group(path, **TWO) as (runner, _):
        ring = assert_transformers_own(path, runner)
    assert ring.num_beside > 8, "steps waited for each other"


@pytest.mark.parametrize(("name", "depth", "num_drafts", "settings"), MATRIX)
def test_tokens_of_two_stages_are_those_of_one(
    preset: Any, groups: Groups, name: str, depth: int, num_drafts: int, settings: dict[str, Any]
) -> None:
    """RK13: drafts, preemptions, host tier, drawn tokens, log-probabilities of prompts, ranks within stages."""
    path = preset(name)
    wanted = play(*alone(path, **(settings | {"tensor_parallel": 1})), depth, num_drafts)
    clients = play(*groups(path, **(TWO | settings)), depth, num_drafts)
    assert_as_alone(path, clients, wanted, gives_way="num_blocks" in settings)


def test_each_stage_has_its_layers_alone(preset: Any, groups: Groups) -> None:
    """RK12, RK15: the blocks are those of all layers, and memory is taken for some."""
    path = preset("tiny-gemma3")
    whole, _ = alone(path, **GEMMA)
    runner, _ = groups(path, **(TWO | GEMMA))
    assert isinstance(runner, PipelineRunner)
    assert runner.info.num_lanes == 2
    assert (runner.info.groups, runner.info.num_blocks) == (whole.info.groups, whole.info.num_blocks)
    shapes, all_shapes = runner.model.layer_shapes, runner.model.group_shapes
    assert [bool(shape.elements) for shape in shapes] == [
        n in runner.stage.layers for n in range(len(shapes))
    ]
    assert all(shape.elements for shape in all_shapes)
    held = sum(weight.numel() for weight in runner.model.module.parameters())
    assert held < sum(weight.numel() for weight in whole.model.module.parameters())  # type: ignore[attr-defined]


def test_stages_run_their_layers_in_one_call_each(preset: Any) -> None:
    """RK12: in bfloat16, with the tokens of one process."""
    path, settings = preset("qwen3-60m"), {"dtype": "bfloat16"}
    kernels = native_kernels()
    if kernels is None or not kernels.has_dot:
        pytest.skip("this CPU has no bfloat16 dot product")
    prompts = make_prompts((17, 40, 5))
    outputs = []
    for parts in ({"tensor_parallel": 1}, TWO):
        runner, _ = alone(path, **settings) if parts == {"tensor_parallel": 1} else (None, None)
        if runner is not None:
            outputs.append(_greedy(runner, prompts))
            continue
        with group(path, **(settings | parts)) as (leading, _):
            assert isinstance(leading.model.module.model.layers[-1], FusedDecoder)
            outputs.append(_greedy(leading, prompts))
    assert outputs[0] == outputs[1]


def _greedy(runner: Any, prompts: list[list[int]]) -> list[list[int]]:
    ring = LocalRing(runner, None, depth=2, num_seqs=4)
    clients = [ring.submit(prompt, 12) for prompt in prompts]
    ring.run()
    return [client.output for client in clients]


def test_layers_are_divided_by_what_they_cost() -> None:
    """RK12: the head is the first stage's, and counts."""
    assert even_ranges([1.0] * 8, 4, 0.0) == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert even_ranges([1.0] * 8, 2, 4.0) == [(0, 2), (2, 8)]
    assert even_ranges([1.0] * 3, 3, 100.0) == [(0, 1), (1, 2), (2, 3)]
    assert even_ranges([5.0, 1.0, 1.0, 1.0], 2, 0.0) == [(0, 1), (1, 4)]


def test_layers_that_read_the_keys_of_others_are_of_their_stage() -> None:
    """RK18: a stage begins with layer 0, 1 or 4 of these."""
    assert even_ranges([1.0] * 6, 2, 0.0, {2, 3, 5}) == [(0, 4), (4, 6)]
    assert even_ranges([1.0] * 6, 3, 0.0, {2, 3, 5}) == [(0, 1), (1, 4), (4, 6)]
    config_class, settings = PRESETS["tiny-gemma4-shared"]
    assert no_cuts(config_class(**settings)) == {2, 3, 4}
    config_class, settings = PRESETS["tiny-gemma4"]
    assert not no_cuts(config_class(**settings))


def test_weights_of_a_stage() -> None:
    """RK12."""
    first, last = Stage(0, 2, 0, 2, True), Stage(1, 2, 2, 4)
    names = ("model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight", "lm_head.weight")
    assert [first.has(name) for name in names] == [True] * 3
    assert [last.has(name) for name in names] == [False] * 3
    assert last.has("model.norm.weight") and not first.has("model.norm.weight")
    assert last.has("model.layers.2.input_layernorm.weight")


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("tiny-llama", {"pipeline_parallel": 4}, "pipeline_parallel is 4, and the model has 3 layers"),
        (
            "tiny-gemma4-shared",
            {"pipeline_parallel": 3},
            "pipeline_parallel is 3, and layers 1 to 4 of the model have to be of one stage.* 2 stages",
        ),
        ("tiny-phi", {}, "pipeline_parallel: model_type 'phi' is not served by several stages"),
    ],
)
def test_what_is_not_divided_so_is_refused(
    preset: Any, name: str, settings: dict[str, Any], reason: str
) -> None:
    """RK9."""
    with pytest.raises(Exception, match=reason), group(preset(name), **(TWO | settings)):
        pass


def test_settings_name_what_does_not_go_with_stages(tmp_path: Path) -> None:
    """RK9."""
    with pytest.raises(ValueError, match="--device does not go with --pipeline-parallel"):
        settings_for(tmp_path, device="cuda", **TWO)


@pytest.fixture(scope="module")
def in_stages() -> Iterator[Bench]:
    """The demo model at two stages, for all that is asked of it."""
    made: list[PipelineRunner] = []

    def make(num_blocks: int, num_host_blocks: int) -> TorchRunner:
        options = {"num_blocks": num_blocks, "num_host_blocks": num_host_blocks, "max_model_len": 120}
        runner, _ = make_runner(settings_for(DEMO_MODEL, served_model_name="demo", **options, **TWO))
        assert isinstance(runner, PipelineRunner)
        made.append(runner)
        return runner

    bench = Bench(make)
    yield bench
    bench.grammars.close()
    assert made[0].failure is None
    made[0].close()


@pytest.fixture(scope="module")
def plain_outputs() -> Outputs:
    """Of one process."""
    bench = Bench()
    outputs = outputs_without_drafts(bench)
    bench.grammars.close()
    return outputs


@pytest.mark.sampled
@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("draw", DRAWS)
def test_what_goes_with_stages(
    draw: str, method: str, cache: str, depth: int, in_stages: Bench, plain_outputs: Outputs
) -> None:
    """RK13, LA1, LA2: schemas, regular expressions, grammars and choices beside free text, with drafts of both kinds,
    preemptions and the host tier, at three depths, on one group of processes."""
    ring = play_all(draw, method, cache, depth, in_stages, plain_outputs)
    assert ring.num_beside > 20, "steps waited for each other"


def test_vectors_of_stages_are_those_of_one(preset: Any, groups: Groups) -> None:
    """RK13: all states of a prompt come back where it is read."""
    path = preset("tiny-gemma3")
    wanted = embed(alone(path, **GEMMA)[0])
    assert embed(groups(path, **(TWO | GEMMA))[0]) == pytest.approx(wanted, abs=1e-5)
