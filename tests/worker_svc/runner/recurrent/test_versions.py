"""No step updates a state in place: one that is run again gives the same, whatever became of it before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from signalbox.protocol.block_groups import StateGroup
from tests.worker_svc.runner.reference import generate, make_prompts, make_runner
from tests.worker_svc.runner.runner_harness import Driver
from worker_svc.core.batch import Batch, StateCopy
from worker_svc.core.requests.sampling import SamplingTable
from worker_svc.core.requests.state_versions import NOTHING, StateVersions
from worker_svc.runner.recurrent import rows
from worker_svc.runner.recurrent.layout import LayerState, StateLayout, StateShape
from worker_svc.runner.recurrent.making import state_group_of
from worker_svc.runner.recurrent.rows import StateRows
from worker_svc.runner.recurrent.store import StateStore

ModelDir = Callable[[str], Path]
PRESETS = ["hybrid-qwen3-next", "hybrid-kimi-linear", "hybrid-lfm2", "hybrid-bamba", "hybrid-jamba"]
"""One for each kind of layer."""
LAYOUT = StateLayout(
    {
        1: LayerState(StateShape((3, 4), torch.bfloat16), StateShape((2, 5), torch.float32)),
        4: LayerState(StateShape((3, 4), torch.bfloat16), None),
    }
)


def run_twice(driver: Driver) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of a step of a prompt's middle chunk and two decode rows, and of the same step again."""
    prompts = make_prompts((20, 9, 90))
    decoding = [driver.add(prompt, 9) for prompt in prompts[:2]]
    driver.step({request.slot: request.num_prompt for request in decoding})
    prefilling = driver.add(prompts[2], 9)
    driver.step({prefilling.slot: 30})
    _, batch = driver.build({prefilling.slot: 30})
    driver.states.take(batch)
    return driver.runner.forward(batch), driver.runner.forward(batch)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_step_that_runs_again_gives_the_same(model_dir: ModelDir, preset: str) -> None:
    """SG3."""
    first, second = run_twice(Driver(make_runner(model_dir(preset))))
    assert torch.equal(first, second)


@pytest.mark.parametrize("preset", PRESETS)
def test_an_update_in_place_would_be_found(
    model_dir: ModelDir, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SG3. The test above, with the fault planted: rows write the version that they read."""

    def in_place(store: StateStore, batch: Batch) -> StateRows:
        reads = np.where(batch.state_reads == NOTHING, batch.state_writes, batch.state_reads)
        return StateRows(
            store,
            batch.query_starts,
            store.rows_of(batch.slots, batch.state_reads),
            store.rows_of(batch.slots, reads),
        )

    driver = Driver(make_runner(model_dir(preset)))
    monkeypatch.setattr("worker_svc.runner.torch_runner.rows_of", in_place)
    with pytest.raises(AssertionError, match="in place"):
        run_twice(driver)
    monkeypatch.setattr(rows.StateRows, "__post_init__", lambda self: None)
    driver = Driver(driver.runner)
    first, second = run_twice(driver)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_step_whose_results_are_lost_is_run_again(model_dir: ModelDir, preset: str) -> None:
    """SG3. Every other step fails behind the model, and is run again in two halves, as isolation does."""
    path = model_dir(preset)
    driver = Driver(make_runner(path))
    prompts = make_prompts((40, 7, 70))
    requests = [driver.add(prompt, 12) for prompt in prompts]
    whole = driver.runner.execute

    def fails_first(batch: Batch):  # type: ignore[no-untyped-def]
        whole(batch)
        if len(batch.slots) > 1:
            for first in range(len(batch.slots)):
                whole(batch.rows(first, first + 1))
        return whole(batch)

    driver.runner.execute = fails_first  # type: ignore[method-assign]
    driver.run(chunk_size=30)
    for request, prompt in zip(requests, prompts, strict=True):
        assert request.output == generate(path, tuple(prompt), 12)[0]


def test_steps_in_flight_write_what_no_other_reads() -> None:
    """SG3. Two in flight, of which the first is run again: its version is still there."""
    states = StateVersions(4, 3)
    prompt, first, second, third = (
        rows_at(start, length) for start, length in ((0, 5), (5, 1), (6, 1), (7, 1))
    )
    states.take(prompt)
    assert prompt.state_reads.tolist() == [NOTHING, NOTHING]
    states.commit(prompt, ())
    kept = prompt.state_writes.tolist()
    states.take(first)
    states.take(second)
    assert first.state_reads.tolist() == kept and second.state_reads.tolist() == first.state_writes.tolist()
    assert not np.isin(kept, (first.state_writes, second.state_writes)).any()
    with pytest.raises(AssertionError, match="too many"):
        states.take(third)
    states.commit(first, [1])
    assert states.num_tokens[[2, 0]].tolist() == [6, 5], "a row that failed keeps what it had"
    assert states.version[[2, 0]].tolist() == [int(first.state_writes[0]), kept[1]]


def rows_at(start: int, length: int) -> Batch:
    """A batch of two rows, of slots 2 and 0, from position `start` on."""
    none = np.empty(0, np.int32)
    positions = np.tile(np.arange(start, start + length, dtype=np.int32), 2)
    return Batch(
        step_id=1, slots=np.array([2, 0], np.int32), num_decode_rows=0, token_ids=positions, positions=positions,
        query_starts=np.array([0, length, 2 * length], np.int32), seq_lens=np.full(2, start + length, np.int32),
        block_tables=none, sample_index=none, sample_rows=none, sample_output_positions=none,
        sampling=SamplingTable(4), tokens=none, num_prompt_tokens=none, num_tokens=none,
    )  # fmt: skip


def test_a_checkpoint_is_read_whole() -> None:
    """SG5. Three states of each of three slots: two versions and the last boundary's."""
    store = StateStore(LAYOUT, num_slots=3, num_versions=2, num_checkpoints=2)
    for parts in store.layers.values():
        for part in parts:
            part.copy_(torch.randn(part.shape))
    before = {number: [part.clone() for part in parts] for number, parts in store.layers.items()}
    store.copy([StateCopy(2, 1, 0, is_restored=False), StateCopy(1, 0, 0, is_restored=True)])
    store.copy([StateCopy(0, store.num_versions, 1, is_restored=False)])
    for number, parts in store.layers.items():
        for part, was in zip(parts, before[number], strict=True):
            assert torch.equal(part[3], was[7]) and torch.equal(part[9], was[7])
            assert torch.equal(part[10], was[2])
            untouched = [0, 1, 2, 4, 5, 6, 7, 8]
            assert torch.equal(part[untouched], was[untouched])
    with pytest.raises(AssertionError):
        store.copy([StateCopy(0, 0, 2, is_restored=True)])


@pytest.mark.parametrize(("block_size", "boundary"), [(16, 64), (64, 64), (128, 128), (48, 192)])
def test_a_boundary_is_one_of_blocks_and_of_scans(block_size: int, boundary: int) -> None:
    """SG6, CK1."""
    store = StateStore(LAYOUT, num_slots=1, num_versions=2, num_checkpoints=3)
    assert state_group_of(store, block_size, 7) == StateGroup(boundary, 3, 7)
