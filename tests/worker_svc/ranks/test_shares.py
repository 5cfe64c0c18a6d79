"""Shares of heads and columns, and the parts of weights (RK6): nothing is lost, nothing is there twice."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.split import shares
from worker_svc.runner.split.plan import SplitPlan, localise, plan_of
from worker_svc.runner.split.slices import cut_of


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("total", [8, 64, 96, 704, 1536, 4864, 11008])
def test_widths_are_divided_without_a_rest(total: int, size: int) -> None:
    parts = [shares.width(total, rank, size) for rank in range(size)]
    ends = [(part.start, part.end) for part in parts if part is not None]
    assert [start for start, _ in ends] == [0, *[end for _, end in ends[:-1]]]
    assert ends[-1][1] == total and all(start < end for start, end in ends)


@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "size", "expected"),
    [
        (8, 4, 2, [((0, 4), (0, 2)), ((4, 8), (2, 4))]),
        (9, 3, 2, [((0, 3), (0, 1)), ((3, 9), (1, 3))]),
        (4, 1, 2, [((0, 2), (0, 1)), ((2, 4), (0, 1))]),
        (8, 2, 4, [((0, 2), (0, 1)), ((2, 4), (0, 1)), ((4, 6), (1, 2)), ((6, 8), (1, 2))]),
    ],
)
def test_query_heads_go_with_their_kv_heads(
    num_heads: int, num_kv_heads: int, size: int, expected: list[tuple[tuple[int, int], tuple[int, int]]]
) -> None:
    parts = [shares.heads(num_heads, num_kv_heads, rank, size) for rank in range(size)]
    assert [part and (part.queries[:2], part.keys[:2]) for part in parts] == expected
    group = num_heads // num_kv_heads
    for part in parts:
        assert part is not None
        queries = range(part.queries.start, part.queries.end)
        assert {head // group for head in queries} == set(range(part.keys.start, part.keys.end))


def test_heads_that_cannot_be_divided_stay_whole() -> None:
    assert shares.heads(6, 2, 0, 3) is None
    assert shares.heads(9, 3, 0, 4) is None


def plans(size: int, **config: object) -> list[SplitPlan]:
    options = {"model_type": "llama", "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 16}
    return [plan_of(SimpleNamespace(**(options | config)), rank, size) for rank in range(size)]


def part(name: str, whole: torch.Tensor, plan: SplitPlan, family: str = "llama") -> torch.Tensor:
    cut = cut_of(name, tuple(whole.shape), plan, family)
    made = whole if cut is None else cut.of(whole)
    assert isinstance(made, torch.Tensor)
    return made


def test_an_mlp_in_parts_sums_up_to_the_whole() -> None:
    torch.manual_seed(0)
    both = plans(2, intermediate_size=24)
    gate, down = torch.randn(24, 16).double(), torch.randn(16, 24).double()
    bias, x = torch.randn(16).double(), torch.randn(3, 16).double()
    names = [
        f"model.layers.0.mlp.{name}" for name in ("gate_proj.weight", "down_proj.weight", "down_proj.bias")
    ]
    total = sum(
        torch.relu(x @ part(names[0], gate, plan).T) @ part(names[1], down, plan).T
        + part(names[2], bias, plan)
        for plan in both
    )
    torch.testing.assert_close(total, torch.relu(x @ gate.T) @ down.T + bias)


@pytest.mark.parametrize("family", ["mixtral", "gpt_oss", "llama4_text"])
def test_gates_and_ups_stay_together(family: str) -> None:
    """Each column of a gate goes with its up, however a family joins them."""
    both = plans(2, model_type=family, intermediate_size=6)
    columns = torch.arange(6)
    joined = torch.stack((columns, columns + 100), -1).flatten()
    if family != "gpt_oss":
        joined = torch.cat((columns, columns + 100))
    experts = (
        joined[None, None].expand(2, 4, 12) if family != "mixtral" else joined[None, :, None].expand(2, 12, 4)
    )
    got = []
    for plan in both:
        mine = part("model.layers.0.mlp.experts.gate_up_proj", experts, plan, family)
        row = mine[0, 0] if family != "mixtral" else mine[0, :, 0]
        pairs = row.view(-1, 2).T if family == "gpt_oss" else row.view(2, -1)
        assert (pairs[1] - pairs[0] == 100).all()
        got += pairs[0].tolist()
    assert got == columns.tolist()


def test_joined_heads_are_cut_one_by_one() -> None:
    """Phi's queries, keys and values in one."""
    both = plans(2, model_type="phi3")
    rows = torch.arange(8 * 4)[:, None].expand(-1, 16)
    parts = [part("model.layers.0.self_attn.qkv_proj.weight", rows, plan, "phi3")[:, 0] for plan in both]
    assert parts[0].tolist() == [*range(8), *range(16, 20), *range(24, 28)]
    assert sorted(torch.cat(parts).tolist()) == list(range(32))


def test_what_no_plan_names_is_there_as_a_whole() -> None:
    (_, second) = plans(2, intermediate_size=24)
    for name in (
        "model.embed_tokens.weight",
        "model.layers.0.mlp.gate.weight",
        "model.layers.0.linear_attn.out_proj.weight",
        "model.layers.0.self_attn.q_norm.weight",
    ):
        assert cut_of(name, (24, 16), second, "qwen3_next") is None


def test_a_family_that_nobody_compared_is_refused() -> None:
    with pytest.raises(ModelLoadError, match="model_type 'gpt2' is not served by several ranks"):
        plans(2, model_type="gpt2")
    with pytest.raises(ModelLoadError, match="intermediate_size 3 cannot be divided by 4"):
        plans(4, intermediate_size=3)


def test_a_config_becomes_that_of_its_part() -> None:
    config = SimpleNamespace(
        model_type="llama",
        num_attention_heads=9,
        num_key_value_heads=3,
        hidden_size=576,
        intermediate_size=1536,
    )
    plan = plan_of(config, 1, 2)
    localise(config, plan)
    counts = (
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
        config.intermediate_size,
    )
    assert counts == (6, 2, 64, 768)
