"""The Triton kernels that move recurrent states on, against transformers' own functions, and against themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from torch import nn
from transformers.models.bamba.modeling_bamba import mamba2_chunk_scan
from transformers.models.jamba.modeling_jamba import mamba_selective_scan, mamba_selective_state_update
from transformers.models.kimi_linear.modeling_kimi_linear import recurrent_kimi_delta_attention
from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

from tests.pairs import every_other
from worker_svc.core.requests.state_versions import NOTHING
from worker_svc.runner.recurrent.columns import StateColumns, upload_columns
from worker_svc.runner.triton.states.convolution import convolve
from worker_svc.runner.triton.states.delta_rule import Decay, apply_delta_rule
from worker_svc.runner.triton.states.softplus import softplus
from worker_svc.runner.triton.states.state_space import Space, move_space, scan_selectively

CPU = torch.device("cpu")
LENGTHS = (1, 7, 1, 4, 2)
SOURCES = (3, 5, NOTHING, NOTHING, 0)
TARGETS = (4, 9, 1, 7, 2)
"""Rows of a store of `NUM_ROWS`, of which no other has numbers."""
NUM_ROWS = 10
TOTAL = sum(LENGTHS)
STARTS = np.cumsum((0, *LENGTHS)).astype(np.int32)
TOLERANCES = {torch.float32: 2e-5, torch.bfloat16: 3e-2}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCES)


def columns(starts: np.ndarray, sources: tuple[int, ...], targets: tuple[int, ...]) -> list[StateColumns]:  # type: ignore[type-arg]
    run = (starts.astype(np.int32), np.array(sources, np.int32), np.array(targets, np.int32))
    return upload_columns([run], CPU)


RUNS = columns(STARTS, SOURCES, TARGETS)


def random_store(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Rows that are read have numbers."""
    store = torch.full((NUM_ROWS, *shape), torch.nan, dtype=dtype)
    for source in SOURCES:
        if source != NOTHING:
            store[source] = torch.randn(shape).to(dtype)
    return store


def assert_moved(before: torch.Tensor, after: torch.Tensor) -> None:
    """SG3: rows that are no targets are as they were, and targets have numbers."""
    others = [row for row in range(NUM_ROWS) if row not in TARGETS]
    assert torch.equal(before[others].nan_to_num(nan=7.0), after[others].nan_to_num(nan=7.0))
    assert not after[list(TARGETS)].isnan().any()


def assert_near(actual: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    assert actual.shape == expected.shape
    error = (actual.double() - expected.double()).abs().max() / expected.double().abs().max()
    assert float(error) < tolerance


@dataclass
class Case:
    """A kernel's call on columns `[T, ...]`, and what transformers says of one row."""

    inputs: tuple[torch.Tensor, ...]
    states: torch.Tensor
    call: Callable[[tuple[torch.Tensor, ...], torch.Tensor, list[StateColumns]], torch.Tensor]
    reference: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    """(columns of the row, its state or None) to outputs `[n, ...]` and the state."""

    def run(self, runs: list[StateColumns] = RUNS) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs and states."""
        states = self.states.clone()
        return self.call(self.inputs, states, runs), states

    def check(self, tolerance: float) -> None:
        """Each row is what transformers makes of it, and no other row of the store has changed."""
        out, states = self.run()
        assert_moved(self.states, states)
        for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
            span = slice(STARTS[row], STARTS[row + 1])
            state = None if source == NOTHING else self.states[source].clone()
            expected, behind = self.reference(tuple(part[span] for part in self.inputs), state)
            assert_near(out[span], expected, tolerance)
            assert_near(states[target], behind, tolerance)

    def check_cuts(self) -> None:
        """SG6: the same bit for bit when each row runs alone, and in parts."""
        out, states = self.run()
        for row, (first, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
            again, start, source = self.states.clone(), STARTS[row], first
            for end in range(STARTS[row] + 1, STARTS[row + 1] + 1):
                if end - start not in (1, 3) and end != STARTS[row + 1]:
                    continue
                goal = 6 if source == 8 else 8
                part = self.call(self.inputs, again, columns(np.array([start, end]), (source,), (goal,)))
                assert torch.equal(part[start:end], out[start:end])
                start, source = end, goal
            assert torch.equal(again[source], states[target])


def convolution(dtype: torch.dtype, *, has_bias: bool, has_silu: bool, channels: int = 300) -> Case:
    torch.manual_seed(0)
    conv = nn.Conv1d(channels, channels, 4, groups=channels, bias=has_bias).to(dtype).requires_grad_(False)

    def reference(parts: tuple[torch.Tensor, ...], state: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        x = parts[0].double().T
        ahead = torch.zeros(channels, 4).double() if state is None else state.double()
        whole = torch.cat((ahead, x), 1)
        bias = None if conv.bias is None else conv.bias.double()
        out = nn.functional.conv1d(whole[None, :, 1:], conv.weight.double(), bias, groups=channels)[0]
        return (nn.functional.silu(out) if has_silu else out).T, whole[:, -4:]

    return Case(
        (torch.randn(TOTAL, 2 * channels).to(dtype)[:, :channels],),
        random_store(channels, 4, dtype=dtype),
        lambda parts, states, runs: convolve(parts[0], conv, states, runs, has_silu=has_silu),
        reference,  # type: ignore[arg-type]
    )


def delta_net(dtype: torch.dtype, *, per_channel: bool) -> Case:
    torch.manual_seed(1)
    key_heads, heads, dk, dv = (4, 4, 12, 12) if per_channel else (2, 4, 24, 40)
    rates, biases = torch.randn(heads), torch.randn(heads * dk if per_channel else heads)
    mixed = torch.randn(TOTAL, 2 * key_heads * dk + heads * dv).to(dtype)
    decays = torch.randn(TOTAL, len(biases)).to(dtype)
    updates = torch.randn(TOTAL, heads).to(dtype)
    sizes = [key_heads * dk, key_heads * dk, heads * dv]

    def call(parts: tuple[torch.Tensor, ...], states: torch.Tensor, runs: list[StateColumns]) -> torch.Tensor:
        query, key, value = parts[0].split(sizes, dim=1)
        decay = Decay(rates, biases)
        return apply_delta_rule(
            (query, key, value), parts[1], parts[2], decay, states, runs, update_scale=2.0
        )

    def reference(parts: tuple[torch.Tensor, ...], state: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        query, key, value = (
            part.reshape(1, len(part), -1, dim)
            for part, dim in zip(parts[0].split(sizes, dim=1), (dk, dk, dv), strict=True)
        )
        raw = nn.functional.softplus(parts[1].float() + biases).view(1, len(value[0]), heads, -1)
        g = -rates.exp()[:, None] * raw
        function = recurrent_kimi_delta_attention if per_channel else torch_recurrent_gated_delta_rule
        out, behind = function(
            query,
            key,
            value,
            g=g if per_channel else g[..., 0],
            beta=2 * parts[2].float().sigmoid()[None],
            initial_state=None if state is None else state[None],
            output_final_state=True,
            use_qk_l2norm_in_kernel=True,
        )
        return out[0], behind[0]

    return Case((mixed, decays, updates), random_store(heads, dk, dv), call, reference)  # type: ignore[arg-type]


def state_space(dtype: torch.dtype, least: float = 0.0) -> Case:
    torch.manual_seed(2)
    heads, groups, p, n = 4, 2, 40, 24
    space = Space(torch.randn(heads), torch.randn(heads), torch.randn(heads), (least, float("inf")))
    inputs = tuple(
        torch.randn(TOTAL, width).to(dtype) for width in (heads * p, groups * n, groups * n, heads)
    )

    def reference(parts: tuple[torch.Tensor, ...], state: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        x, inward, outward, steps = (part.float()[None] for part in parts)
        out, behind = mamba2_chunk_scan(
            x.view(1, -1, heads, p),
            steps,
            -space.rates.exp(),
            inward.view(1, -1, groups, n),
            outward.view(1, -1, groups, n),
            chunk_size=4,
            D=space.skips,
            z=None,
            return_final_states=True,
            dt_bias=space.biases,
            dt_softplus=True,
            initial_states=None if state is None else state[None],
            dt_limit=space.step_limits,
        )
        return out.reshape(len(parts[0]), -1), behind[0]

    return Case(
        inputs,
        random_store(heads, p, n),
        lambda parts, states, runs: move_space(*parts, space, states, runs),  # type: ignore[call-arg]
        reference,  # type: ignore[arg-type]
    )


def selective_scan(dtype: torch.dtype) -> Case:
    torch.manual_seed(3)
    channels, n = 50, 12
    space = Space(torch.randn(channels, n), torch.randn(channels), torch.randn(channels))
    inputs = tuple(torch.randn(TOTAL, width).to(dtype) for width in (channels, n, n, channels))

    def reference(parts: tuple[torch.Tensor, ...], state: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        x, inward, outward, steps = (part.float() for part in parts)
        if state is None:
            out, behind = mamba_selective_scan(
                x.T[None],
                steps.T[None],
                -space.rates.exp(),
                inward.T[None],
                outward.T[None],
                D=space.skips,
                delta_bias=space.biases,
                delta_softplus=True,
                return_last_state=True,
            )
            return out[0].T, behind[0]
        held, outs = state[None], []
        for token in range(len(x)):
            outs.append(
                mamba_selective_state_update(
                    held,
                    x[token][None],
                    steps[token][None],
                    -space.rates.exp(),
                    inward[token][None],
                    outward[token][None],
                    space.skips,
                    dt_bias=space.biases,
                    dt_softplus=True,
                )[0]
            )
        return torch.stack(outs), held[0]

    return Case(
        inputs,
        random_store(channels, n),
        lambda parts, states, runs: scan_selectively(*parts, space, states, runs),  # type: ignore[call-arg]
        reference,  # type: ignore[arg-type]
    )


@DTYPES
@pytest.mark.parametrize(("has_bias", "has_silu"), every_other([False, True], [False, True]))
def test_convolution(dtype: torch.dtype, has_bias: bool, has_silu: bool) -> None:
    case = convolution(dtype, has_bias=has_bias, has_silu=has_silu)
    case.check(TOLERANCES[dtype])
    case.check_cuts()


@DTYPES
@pytest.mark.parametrize("per_channel", [False, True], ids=["of Qwen", "of Kimi"])
def test_delta_rule(dtype: torch.dtype, per_channel: bool) -> None:
    case = delta_net(dtype, per_channel=per_channel)
    case.check(TOLERANCES[dtype])
    case.check_cuts()


@DTYPES
@pytest.mark.parametrize("least", [0.0, 0.7])
def test_state_space(dtype: torch.dtype, least: float) -> None:
    case = state_space(dtype, least)
    case.check(TOLERANCES[dtype])
    case.check_cuts()


@DTYPES
def test_selective_scan(dtype: torch.dtype) -> None:
    case = selective_scan(dtype)
    case.check(TOLERANCES[dtype])
    case.check_cuts()


def test_runs_go_on_from_each_other() -> None:
    """A state that is kept on a row's way: the row's rest reads what its first part has written."""
    case = delta_net(torch.float32, per_channel=False)
    out, states = case.run()
    first, rest = (np.array([1, 4], np.int32), np.array([4, 8], np.int32))
    runs = [
        (first, np.array([5], np.int32), np.array([6], np.int32)),
        (rest, np.array([6], np.int32), np.array([8], np.int32)),
    ]
    again, moved = case.run(upload_columns(runs, CPU))
    assert torch.equal(again[1:8], out[1:8])
    assert torch.equal(moved[8], states[9])


def test_no_row_depends_on_others() -> None:
    """Whatever others' columns are, not a number among them."""
    for case in (
        convolution(torch.float32, has_bias=True, has_silu=True),
        delta_net(torch.float32, per_channel=True),
        state_space(torch.float32),
        selective_scan(torch.float32),
    ):
        out, states = case.run()
        spoilt = tuple(part.clone() for part in case.inputs)
        for part in spoilt:
            part[: STARTS[3]] = torch.nan
        again, moved = replace(case, inputs=spoilt).run()
        assert torch.equal(again[STARTS[3] :], out[STARTS[3] :])
        assert torch.equal(moved[list(TARGETS[3:])], states[list(TARGETS[3:])])


@triton.jit
def softplus_kernel(out, x, COUNT: tl.constexpr, PAD: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """Of all numbers at once."""
    i = tl.arange(0, PAD)
    tl.store(out + i, softplus(tl.load(x + i, mask=i < COUNT, other=0.0)), mask=i < COUNT)


def test_softplus() -> None:
    """Relative to its size, however small."""
    x = torch.cat((torch.linspace(-60, 60, 400), torch.tensor([-88.0, 20.0, 20.1])))
    out = torch.empty_like(x)
    softplus_kernel[(1,)](out, x, COUNT=len(x), PAD=512)
    expected = torch.log1p(x.double().exp())
    assert float(((out - expected) / expected).abs().max()) < 1e-6
