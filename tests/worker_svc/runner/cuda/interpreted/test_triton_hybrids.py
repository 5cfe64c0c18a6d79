"""Models with recurrent layers on Triton's kernels: decode steps that read the device's state alone, a step ahead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pairs import in_soak
from tests.worker_svc.drafting.local_ring import LocalRing
from tests.worker_svc.runner.cuda.serving_ahead import RecordingRunner, serve_ahead, serve_drafted
from tests.worker_svc.runner.reference import assert_greedy, make_prompts
from worker_svc.core.batch import Batch
from worker_svc.runner.cuda.graphs import DecodeStep
from worker_svc.runner.cuda.runner import CudaRunner, Launched, Mask
from worker_svc.runner.recurrent.layers import RecurrentForward
from worker_svc.runner.triton.states.layer import TritonLayer

ModelDir = Callable[[str], Path]
NUM_TOKENS = 6
PRESETS = ["qwen3-next", "kimi-linear", "granite", "jamba", "lfm2"]
"""One of each kind of layer."""
SIMILAR = ["qwen3-5", "olmo", "nemotron-h"]
"""Others with layers of these kinds."""
OTHER = "falcon-h1"
"""Its layers have no kernels here."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("preset", [*PRESETS, *in_soak(*SIMILAR), OTHER])
def test_greedy_output_equals_generate(
    model_dir: ModelDir, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O4, SG3: steps of several sizes, beside prompts, over a boundary that is kept; rows that fill up a step write
    into states that no request has."""
    path = model_dir(f"hybrid-{preset}")
    runner = RecordingRunner.of(
        path, attention="triton", num_slots=8, num_checkpoints=4, max_model_len=96, num_blocks=60
    )
    modules = list(runner.model.module.modules())
    assert any(isinstance(module, TritonLayer) for module in modules) == (preset != OTHER)
    assert any(isinstance(module.forward, RecurrentForward) for module in modules) == (preset == OTHER)
    sizes, run = [], DecodeStep.run
    monkeypatch.setattr(DecodeStep, "run", lambda step: sizes.append(len(step.inputs.slots)) or run(step))
    serve_ahead(runner, path, make_prompts((2, 61, 1)), 2, NUM_TOKENS, stops=(None, None, 3))
    assert 4 in sizes, "three rows run on the step of four"
    assert runner.num_keeps


@pytest.mark.timeout(300)
def test_drafts(model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """SG10, SG12: a row with a tail, and without drafts of its own, runs beside the graphs."""
    path, tailed = model_dir("hybrid-qwen3-5"), []
    runner = RecordingRunner.of(
        path, attention="triton", num_slots=4, num_checkpoints=0, max_model_len=48, max_draft_tokens=2
    )
    launch = CudaRunner._launch

    def note(self: CudaRunner, batch: Batch, ahead: Mask) -> Launched:
        tailed.append(int(batch.state_tails.sum()))
        return launch(self, batch, ahead)

    monkeypatch.setattr(CudaRunner, "_launch", note)
    serve_drafted(runner, path, make_prompts((3, 9)), 2, 14)
    assert any(tailed), "no step has tails and no drafts"


def test_states_that_graphs_pass_are_kept(model_dir: ModelDir) -> None:
    """CK3, SG12: a decode row passes a boundary, and the next turn of its conversation goes on from there."""
    path, prompt = model_dir("hybrid-lfm2"), make_prompts((61,))[0]
    runner = RecordingRunner.of(
        path, attention="triton", num_slots=8, num_checkpoints=8, max_model_len=96, num_blocks=60
    )
    ring = LocalRing(runner, None, num_seqs=4)
    first = ring.submit(prompt, NUM_TOKENS)
    ring.run()
    ring.step()  # in which the ended request's last boundary is kept
    longer = [*prompt, *first.output, 5]
    second = ring.submit(longer, NUM_TOKENS)
    ring.run()
    assert ring.worker.stats.num_prefix_hit_tokens == 64
    assert_greedy(second.output, path, longer, NUM_TOKENS)
