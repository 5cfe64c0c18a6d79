"""The draft model's own bounds, and what becomes of requests when it fails."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from signalbox.cli.ring.ring import DEMO_MODEL
from tests.worker_svc.drafting.local_ring import LocalRing
from worker_svc.core.drafts.drafter import I32, Drafter, DraftRows
from worker_svc.core.drafts.ngram import NgramDrafter
from worker_svc.runner import draft_model
from worker_svc.runner.attention import attention
from worker_svc.runner.attention.attention import PagedBatch
from worker_svc.runner.attention.kv_cache import KVCache
from worker_svc.runner.cpu.direct_forward import DirectForward, forward_of
from worker_svc.runner.cpu.flags import BFLOAT16_CPU_FLAGS, cpu_flags
from worker_svc.runner.draft_model import DraftModel, load_draft, ranges_to_compute
from worker_svc.runner.torch_runner import TorchRunner, load_checked

NUM_DRAFTS, NUM_TOKENS = 3, 40


def make_pair(target: Path, draft: Path) -> tuple[TorchRunner, DraftModel]:
    options: dict[str, Any] = {"dtype": "float32", "block_size": 4, "threads": 1, "max_model_len": 300}
    runner = TorchRunner(target, served_model_name="tiny", num_blocks=400, **options)
    runner.info = replace(runner.info, max_draft_tokens=NUM_DRAFTS)
    return runner, load_draft(draft, target, dtype="float32", device="cpu", block_size=4).on(runner)


def make_prompt(length: int) -> list[int]:
    return np.random.default_rng(length).integers(3, 512, length).tolist()


def output_of(runner: TorchRunner, drafter: Drafter | None, prompt: list[int]) -> tuple[list[int], LocalRing]:
    ring = LocalRing(runner, drafter, num_drafts=NUM_DRAFTS if drafter else 0)
    client = ring.submit(prompt, NUM_TOKENS)
    ring.run()
    return client.output, ring


def test_no_drafts_beyond_the_draft_model_s_context(
    target_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The target goes on alone where its draft model was not made for more."""
    short = shutil.copytree(target_dir, tmp_path / "short")
    config = json.loads((short / "config.json").read_text())
    (short / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 60}))
    runner, drafter = make_pair(target_dir, short)
    plain, _ = output_of(runner, None, make_prompt(40))
    drafted, ring = output_of(runner, drafter, make_prompt(40))
    assert drafted == plain
    assert ring.acceptance > 0.99
    assert 10 < ring.core.draft_totals.num_drafted < 30
    beyond, ring = output_of(runner, drafter, make_prompt(70))
    assert len(beyond) == NUM_TOKENS
    assert ring.core.draft_totals.num_drafted == 0
    assert not caplog.records, "it did not fail, it had nothing to say"


def test_a_long_prompt_is_caught_up_with_over_several_steps(
    target_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_model, "CATCH_UP_TOKENS", 50)
    runner, drafter = make_pair(target_dir, target_dir)
    sizes: list[int] = []
    run = drafter._run

    def watch(batch: Any, tokens: I32, wanted: I32) -> Any:
        sizes.append(len(tokens))
        return run(batch, tokens, wanted)

    monkeypatch.setattr(drafter, "_run", watch)
    _, ring = output_of(runner, drafter, make_prompt(170))
    assert sizes[:3] == [50, 50, 50]
    assert max(sizes) == 50
    assert ring.acceptance > 0.99


def test_who_lags_behind_shares_what_is_left() -> None:
    """Rows of (known and computed, known, most drafts): steady ones are whole, the others first come, first served."""
    starts, ends, limits = np.array([[0, 600, 4], [97, 100, 4], [0, 300, 4], [5, 300, 2]]).T
    ranges = ranges_to_compute(starts, ends, limits)
    assert [tuple(row_range) for row_range in ranges] == [(1, 97, 100), (0, 0, 512)]
    starts[0] = 400
    ranges = ranges_to_compute(starts, ends, limits)
    assert [tuple(row_range) for row_range in ranges] == [
        (1, 97, 100),
        (3, 5, 17),
        (0, 400, 600),
        (2, 0, 300),
    ]


class Failing(NgramDrafter):
    """Fails the third time that it is asked."""

    def __init__(self) -> None:
        super().__init__(1, 4)
        self.num_calls = 0

    def propose_all(self, rows: DraftRows) -> list[I32]:
        self.num_calls += 1
        if self.num_calls == 3:
            raise RuntimeError("no memory")
        return super().propose_all(rows)


def test_a_drafter_that_fails_is_not_asked_again(target_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    """D6."""
    runner, _ = make_pair(target_dir, target_dir)
    plain, _ = output_of(runner, None, [5, 6, 7] * 6)
    drafter = Failing()
    drafted, _ = output_of(runner, drafter, [5, 6, 7] * 6)
    assert drafted == plain
    assert drafter.num_calls == 3
    assert "the drafter failed" in caplog.text


@pytest.mark.skipif(not BFLOAT16_CPU_FLAGS & cpu_flags(), reason="the native layers need bfloat16 products")
def test_the_short_way_gives_the_same_logits_as_the_model_s_own_code() -> None:
    model = load_checked(DEMO_MODEL / "draft", "bfloat16", "cpu", 16)
    forward = forward_of(model, 200)
    if not isinstance(forward, DirectForward):
        pytest.skip("without a compiler the layers are transformers' own")
    tokens, positions = torch.arange(100, 140), torch.arange(40)
    got = []
    for run in (forward, None):
        cache = KVCache(
            model.layer_shapes, num_blocks=4, block_size=16, dtype=model.dtype, device=model.device
        )
        batch = PagedBatch(
            cache=cache,
            num_decode_rows=0,
            query_starts=np.array([0, 40], np.int32),
            positions=np.arange(40, dtype=np.int32),
            block_tables=np.array([[2, 0, 3]], np.int32),
            device=model.device,
        )
        wanted = torch.tensor([3, 39])
        with attention.running(batch), torch.inference_mode():
            if run is not None:
                got.append(run(tokens, positions, wanted).logits)
            else:
                got.append(
                    model.module(tokens[None], position_ids=positions[None], logits_to_keep=wanted).logits[0]
                )
    assert torch.equal(got[0], got[1])
