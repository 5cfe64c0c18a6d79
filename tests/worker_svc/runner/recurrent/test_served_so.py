"""What models with recurrent layers are not served with: refused at the start, by the name of the setting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Lfm2Config, Lfm2ForCausalLM

from signalbox.errors import StartupError
from signalbox.protocol.enums import FinishReason
from signalbox.protocol.hash_chain import root_hash
from tests.worker_svc.runner.reference import generate, make_prompts, make_runner
from tests.worker_svc.runner.runner_harness import Driver
from tools.hybrid_families import HYBRID_PRESETS
from tools.make_random_model import PRESETS, make_model
from worker_svc.config import WorkerSettings
from worker_svc.core.batch import ModelRunner
from worker_svc.core.drafts.drafter import Drafter
from worker_svc.core.drafts.ngram import NgramDrafter
from worker_svc.core.faults.isolation import run_step
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.core.step import NewRequest, RequestRef, SlotStart, StepDelta
from worker_svc.core.worker_core import WorkerCore
from worker_svc.runner.cuda.runner import CudaRunner
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.kept_weights import Quantization
from worker_svc.runner.recurrent import making
from worker_svc.runner_factory import make_runner as make_served
from worker_svc.worker import _hello

ModelDir = Callable[[str], Path]
PRESET = "hybrid-qwen3-next"


def make_with(model_dir: ModelDir, **settings: Any) -> tuple[ModelRunner, Drafter | None]:
    options = {"num_blocks": 8, "threads": 1, "dtype": "float32", "num_slots": 4} | settings
    return make_served(WorkerSettings(model=model_dir(PRESET), worker_id="w", **options))


def test_what_does_not_go_with_states_is_refused(model_dir: ModelDir) -> None:
    """SG8."""
    reason = "num_host_blocks: beside these blocks .* recurrent states take .* in the host tier, but only"
    with pytest.raises(StartupError, match=reason):
        make_with(model_dir, num_host_blocks=10**9, mean_request_tokens=1)


def test_that_prompts_alone_leave_checkpoints_is_told(model_dir: ModelDir) -> None:
    """CK11."""
    for asked in (False, True):
        states = make_with(model_dir, checkpoints_of_prompts_only=asked)[0].info.state_group
        assert states is not None and states.prompts_only is asked


def test_drafts_take_a_version_more(model_dir: ModelDir) -> None:
    """SG10."""
    (plain, _), (drafting, drafter) = make_with(model_dir), make_with(model_dir, speculative="ngram:2")
    assert isinstance(drafter, NgramDrafter) and drafting.info.max_draft_tokens == 2
    assert drafting.info.num_state_versions == plain.info.num_state_versions + 1


def test_steps_ahead_take_a_version_more(model_dir: ModelDir) -> None:
    """SG3. The runner of GPUs has two on their way."""
    model = make_runner(model_dir(PRESET)).model
    for num_drafts in (0, 2):
        store = making.make_store(model, 4, 0, num_drafts, most_in_flight=CudaRunner._most_in_flight)
        assert store is not None and store.num_versions == 3 + (num_drafts > 0)


def test_a_model_without_attention_is_refused(tmp_path: Path) -> None:
    """SG8. Its blocks would hold nothing."""
    torch.manual_seed(0)
    config = Lfm2Config(**HYBRID_PRESETS["hybrid-lfm2"][1] | {"layer_types": ["conv"] * 3})
    Lfm2ForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(ModelLoadError, match="'lfm2' has recurrent layers alone, none that attends"):
        make_runner(tmp_path)


def test_slots_whose_states_do_not_fit_are_refused(
    model_dir: ModelDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SG8."""
    row_bytes = make_runner(model_dir(PRESET)).model.state_layout.bytes_per_row * 2
    monkeypatch.setattr(making, "available_bytes", lambda _: 10 * row_bytes + 1)
    assert make_runner(model_dir(PRESET), num_slots=9).info.num_slots == 9
    with pytest.raises(ModelLoadError, match=r"num_slots is 10: .* enough for 9\."):
        make_runner(model_dir(PRESET), num_slots=10)


@pytest.mark.parametrize(
    ("asked", "available", "expected"), [(None, 1 << 30, 512), (None, 500, 19), (None, 25, 1), (7, 80, 7)]
)
def test_slots_are_as_many_as_a_share_of_the_memory_holds(
    asked: int | None, available: int, expected: int
) -> None:
    """SG8. Where a number was set, it is that."""
    assert making.slots_that_fit(asked, 10, available) == expected


def test_a_memory_without_room_for_one_state_is_refused() -> None:
    """SG8."""
    with pytest.raises(ModelLoadError, match=r"num_slots is 1: .* enough for 0"):
        making.slots_that_fit(None, 10, 19)


@pytest.mark.parametrize(("preset", "reuses"), [(PRESET, False), ("tiny-qwen3", True)])
def test_the_hello_says_whether_blocks_are_reused(model_dir: ModelDir, preset: str, reuses: bool) -> None:
    """SG7."""
    info = make_runner(model_dir(preset)).info
    settings = WorkerSettings(worker_id="w", max_num_batched_tokens=64)
    hello = _hello(settings, info, "i", "a:1")
    assert (hello.reuses_no_blocks, hello.num_slots) == (not reuses, 16)


def start_at(core: WorkerCore, runner: Any, prompt: list[int], start: int) -> list[Any]:
    """What the frontend is told of a request whose first chunk begins at `start`, after `start` tokens of another."""
    other = SlotStart(0, np.arange(8, dtype=np.int32), 0, start)
    tokens = np.array(prompt, np.int32)
    for slot in (0, 1):
        ref = RequestRef(f"r{slot}", slot + 1, "f")
        params = SamplingParams(temperature=0.0)
        core.add(NewRequest(slot, ref, tokens, 0, 4, params, root_hash("m")))
    step = core.apply(StepDelta(1, 1, started=[other]))
    core.commit(step, *run_step(runner, step.copies, step.batch))
    cached = SlotStart(1, np.arange(8, dtype=np.int32), start, len(prompt) - start)
    step = core.apply(StepDelta(2, 1, started=[cached]))
    _, outputs = core.commit(step, *run_step(runner, step.copies, step.batch))
    return [ended for output in outputs for ended in output.finished]


def test_a_row_that_begins_behind_cached_blocks_fails_alone(model_dir: ModelDir) -> None:
    """SG7, U3. A scheduler that reuses blocks all the same gets no wrong token."""
    runner = make_runner(model_dir(PRESET))
    core = WorkerCore(runner.info, num_slots=4)
    (prompt,) = make_prompts((12,))
    ((attempt, reason, _, failure),) = start_at(core, runner, prompt, 8)
    assert (attempt, reason) == (2, FinishReason.ERROR)
    assert failure.message == "the recurrent state is that of position 0, not of 8"
    chunk = StepDelta(3, 1, chunks=[(0, 8, 4)])
    tokens = []
    for delta in (chunk, StepDelta(4, 1), StepDelta(5, 1), StepDelta(6, 1)):
        step = core.apply(delta)
        _, outputs = core.commit(step, *run_step(runner, step.copies, step.batch))
        tokens += [token for output in outputs for token in output.token_ids.tolist()]
    assert tokens == generate(model_dir(PRESET), tuple(prompt), 4)[0]


@pytest.mark.parametrize("quantization", [Quantization.INT8, Quantization.INT4])
def test_a_weight_that_is_read_without_a_call_is_not_rounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quantization: Quantization
) -> None:
    """SG1. Jamba's steps, whose rank is a whole number of groups here, as that of every published one."""
    config, settings = HYBRID_PRESETS["hybrid-jamba"]
    monkeypatch.setitem(PRESETS, "jamba of rank 32", (config, settings | {"mamba_dt_rank": 32}))
    path = make_model("jamba of rank 32", tmp_path)
    runner = make_runner(path, quantization=quantization)
    driver = Driver(runner)
    requests = [driver.add(prompt, 8) for prompt in make_prompts((5, 40))]
    driver.run(chunk_size=16)
    assert all(len(request.output) == 8 for request in requests)
