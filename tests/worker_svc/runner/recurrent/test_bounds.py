"""Where a prompt may be cut, and what a resumption from a checkpoint gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.bamba import modeling_bamba
from transformers.models.kimi_linear import modeling_kimi_linear
from transformers.models.qwen3_next import modeling_qwen3_next

from tests.worker_svc.runner.reference import assert_greedy, make_prompts, make_runner
from tests.worker_svc.runner.runner_harness import GARBAGE, Driver
from tools.hybrid_families import HYBRID_PRESETS
from worker_svc.core.batch import StateCopy
from worker_svc.runner.cpu import optimize
from worker_svc.runner.recurrent.store import StateStore

ModelDir = Callable[[str], Path]
LENGTH, BOUNDARY = 200, 64
SCAN_EPSILON = 1e-6
"""Largest relative error of a state space's scan that was cut, in float32."""
CUT_EPSILON = 1e-5
"""Largest relative error of logits that a cut makes, or a state that decoding made, in float32 (Y2)."""


def delta_rule(scan: Any, decay_shape: tuple[int, ...]) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """A scan over positions `[start, end)` of fixed inputs, from a state."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, LENGTH, 4, 16)
    decay, beta = -torch.rand(1, LENGTH, *decay_shape), torch.rand(1, LENGTH, 4)

    def run(start: int, end: int, state: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        span = slice(start, end)
        return scan(  # type: ignore[no-any-return]
            query[:, span], key[:, span], value[:, span], g=decay[:, span], beta=beta[:, span],
            initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True,
        )  # fmt: skip

    return run


def state_space() -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """As `delta_rule`, with Mamba 2's scan."""
    torch.manual_seed(0)
    inputs, steps, rates = torch.randn(1, LENGTH, 8, 16), torch.rand(1, LENGTH, 8), -torch.rand(8)
    b, c = torch.randn(2, 1, LENGTH, 2, 16)

    def run(start: int, end: int, state: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        span = slice(start, end)
        return modeling_bamba.mamba2_chunk_scan(  # type: ignore[no-any-return]
            inputs[:, span], steps[:, span], rates, b[:, span], c[:, span],
            chunk_size=16, initial_states=state, return_final_states=True,
        )  # fmt: skip

    return run


SCANS = {
    "gated delta": lambda: delta_rule(modeling_qwen3_next.torch_chunk_gated_delta_rule, (4,)),
    "Kimi delta": lambda: delta_rule(modeling_kimi_linear.chunk_kimi_delta_attention, (4, 16)),
    "Mamba 2": state_space,
}


@pytest.mark.parametrize("cut", [64, 128, 192, 50])
@pytest.mark.parametrize("name", SCANS)
def test_a_scan_that_is_cut_at_a_boundary(name: str, cut: int) -> None:
    """SG6. Delta rules bit for bit, state spaces but for rounding; off the boundary rounding is all that differs."""
    run = SCANS[name]()
    whole, state = run(0, LENGTH, None)
    first, between = run(0, cut, None)
    second, last = run(cut, LENGTH, between)
    pieces = torch.cat((first, second), dim=1)
    if name != "Mamba 2" and cut % BOUNDARY == 0:
        assert torch.equal(pieces, whole) and torch.equal(last, state)
    else:
        assert torch.linalg.norm(pieces - whole) <= SCAN_EPSILON * torch.linalg.norm(whole)
        assert torch.linalg.norm(last - state) <= SCAN_EPSILON * torch.linalg.norm(state)


@pytest.mark.sampled
@pytest.mark.parametrize("has_kernels", [False, True])
@pytest.mark.parametrize("preset", HYBRID_PRESETS)
def test_a_state_of_decoding_differs_by_rounding(
    model_dir: ModelDir, preset: str, has_kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Y2. Up to a boundary by rows of one token, as decoding makes it, and by one chunk: logits further on."""
    if not has_kernels:
        monkeypatch.setattr(optimize, "is_delta_net", lambda _: False)
        monkeypatch.setattr(optimize, "is_state_space", lambda _: False)
    runner = make_runner(model_dir(preset))
    (prompt,) = make_prompts((100,))
    made = []
    for lengths in ([BOUNDARY], [8, *[1] * (BOUNDARY - 8)]):
        driver = Driver(runner)
        request = driver.add(prompt, 12)
        for length in lengths:
            driver.step({request.slot: length})
        _, batch = driver.build({request.slot: 100 - BOUNDARY})
        driver.states.take(batch)
        made.append(runner.forward(batch))
    scanned, decoded = made
    difference = torch.linalg.norm(decoded - scanned) / torch.linalg.norm(scanned)
    print(f"{preset}: {difference:.1e}")
    assert difference <= CUT_EPSILON


@pytest.mark.parametrize("preset", HYBRID_PRESETS)
def test_a_cut_prompt_gives_the_tokens_of_the_whole_one(model_dir: ModelDir, preset: str) -> None:
    """SG6. At boundaries and off them; the whole one is transformers'."""
    path = model_dir(preset)
    runner = make_runner(path)
    (prompt,) = make_prompts((LENGTH,))
    whole = None
    for cuts in ([200], [64, 136], [64, 64, 64, 8], [50, 150]):
        driver = Driver(runner)
        request = driver.add(prompt, 12)
        for length in cuts[:-1]:
            driver.step({request.slot: length})
        _, batch = driver.build({request.slot: cuts[-1]})
        driver.states.take(batch)
        logits = runner.forward(batch)
        whole = logits if whole is None else whole
        assert torch.linalg.norm(logits - whole) <= CUT_EPSILON * torch.linalg.norm(whole)
        driver = Driver(runner)
        request = driver.add(prompt, 12)
        for length in cuts:
            driver.step({request.slot: length})
        driver.run()
        assert assert_greedy(request.output, path, prompt, 12) == 0


@pytest.mark.parametrize("preset", HYBRID_PRESETS)
@pytest.mark.parametrize("kept", [64, 128])
def test_a_preempted_request_goes_on_from_a_checkpoint(model_dir: ModelDir, preset: str, kept: int) -> None:
    """SG5. With the blocks ahead of it, which the prefix cache would have; all behind is computed again."""
    path = model_dir(preset)
    runner = make_runner(path)
    (prompt,) = make_prompts((150,))
    driver = Driver(runner)
    states = driver.states
    assert runner._states is not None
    runner._states = StateStore(runner.model.state_layout, num_slots=17, num_versions=2, num_checkpoints=1)
    runner._states.fill(GARBAGE)
    request = driver.add(prompt, 12)
    for length in (kept, 150 - kept):
        driver.step({request.slot: length})
        if request.num_computed == kept:
            version = int(states.version[request.slot])
            runner.copy_states([StateCopy(request.slot, version, 0, is_restored=False)])
    for _ in range(5):
        driver.step({})
    runner._states.layers[0][0][: 17 * 3] = GARBAGE
    version = int(states.version[request.slot])
    runner.copy_states([StateCopy(request.slot, version, 0, is_restored=True)])
    states.num_tokens[request.slot] = request.num_computed = kept
    driver.run(chunk_size=64)
    assert assert_greedy(request.output, path, prompt, 12) == 0
