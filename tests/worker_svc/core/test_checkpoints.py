"""Which states a worker keeps, where it says that they are, and which it lets others go on from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from signalbox.protocol.block_groups import SPINE, StateGroup
from signalbox.protocol.enums import FinishReason
from signalbox.protocol.hash_chain import root_hash
from worker_svc.core.batch import BlockCopy, RunnerInfo, StateCopy
from worker_svc.core.faults.isolation import RunnerBrokenError, run_step
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.core.step import (
    CheckpointOrder,
    FrontendOutput,
    NewRequest,
    RequestRef,
    SlotStart,
    StepDelta,
    StepReport,
)
from worker_svc.core.worker_core import WorkerCore
from worker_svc.runner.sim.failures import SimFailures
from worker_svc.runner.sim.model import SimRunner, continuation
from worker_svc.steps.misfit import Bounds, misfit_of

BOUNDARY, VOCAB = 8, 100
STATES = StateGroup(BOUNDARY, 4, num_host_checkpoints=2)
INFO = RunnerInfo("sim", 32, 4, 64, VOCAB, (), num_state_versions=2, state_group=STATES)
STATES_NUMBER = 1
"""Of the group that checkpoints are copied as."""
PROMPT = list(range(5, 23))
"""18 tokens."""


class Node:
    """A core and its runner."""

    def __init__(self, failures: SimFailures | None = None, info: RunnerInfo = INFO) -> None:
        self.core, self.runner, self.step = WorkerCore(info, 4), SimRunner(info, failures=failures), 0

    def add(self, slot: int, prompt: list[int], max_tokens: int = 40) -> None:
        ref, tokens = RequestRef(f"r{slot}", self.step * 8 + slot + 1, "f"), np.array(prompt, np.int32)
        self.core.add(NewRequest(slot, ref, tokens, 0, max_tokens, SamplingParams(), root_hash("m")))

    def run(self, **changes: object) -> tuple[StepReport, list[FrontendOutput]]:
        self.step += 1
        step = self.core.apply(StepDelta(self.step, 1, **changes))  # type: ignore[arg-type]
        ran = run_step(self.runner, step.copies, step.batch, state_copies=step.state_copies)
        return self.core.commit(step, *ran)

    def tokens(self, **changes: object) -> list[int]:
        return [token for output in self.run(**changes)[1] for token in output.token_ids.tolist()]


def start(slot: int, length: int, at: int = 0, checkpoint: int = -1) -> SlotStart:
    blocks = np.arange(slot * 8, slot * 8 + 8, dtype=np.int32)
    return SlotStart(slot, blocks, at, length, (), checkpoint)


def order(checkpoint: int, position: int = 0, slot: int = 0) -> CheckpointOrder:
    return CheckpointOrder(slot, checkpoint, position)


def test_a_state_is_kept_on_the_way_of_a_chunk() -> None:
    """CK2: two of one chunk, one of which is its end; a third one lies outside of it."""
    node = Node()
    node.add(0, PROMPT)
    report, _ = node.run(started=[start(0, 16)], checkpoints=[order(2, 8), order(1, 16), order(0, 24)])
    assert report.checkpoint_positions == [8, 16, 0]
    assert [node.core.checkpoints.position_of(number) for number in range(4)] == [0, 16, 8, 0]


def test_who_goes_on_from_a_state_has_the_tokens_of_who_began() -> None:
    """CK6, SG5."""
    node, expected = Node(), continuation(PROMPT, 5, VOCAB)
    node.add(0, PROMPT)
    node.run(started=[start(0, 18)], checkpoints=[order(3, 8)])
    node.add(1, PROMPT)
    node.runner.poison(SPINE, [8, 9])  # the blocks ahead of it are read, too: another's
    shared = np.array([0, 1, *range(10, 16)], np.int32)
    began = node.tokens(started=[SlotStart(1, shared, 8, 10, (), 3)])
    assert began == [expected[1], expected[0]], "a row that decodes, and the one that starts"


def test_the_last_boundary_that_a_row_has_passed_is_kept_before_it_ends() -> None:
    """CK2, CK3. 18 tokens and 9 more: it has passed 24; and the answer comes though the slot is another's."""
    node = Node()
    node.add(0, PROMPT)
    node.run(started=[start(0, 18)])
    report, _ = node.run(checkpoints=[order(0)])
    assert report.checkpoint_positions == [0], "it has passed none while it decoded"
    for _ in range(8):
        node.run()
    report, _ = node.run(checkpoints=[order(1)], finished_slots=[0])
    assert report.checkpoint_positions == [24]
    said = [*PROMPT, *continuation(PROMPT, 9, VOCAB)]
    node.add(0, said)
    report, _ = node.run(checkpoints=[order(2)])
    assert report.checkpoint_positions == [0], "the one before it is forgotten"
    assert node.tokens(started=[start(0, len(said) - 24, 24, 1)]) == continuation(said, 1, VOCAB)


def test_a_row_that_stands_on_a_boundary_is_kept_there() -> None:
    """CK3: a chunk ended there, and nobody ordered it."""
    node = Node()
    node.add(0, PROMPT)
    node.run(started=[start(0, 8)])
    report, _ = node.run(checkpoints=[order(0)], preempted_slots=[0])
    assert report.checkpoint_positions == [8]
    assert node.tokens(resumed=[start(0, 10, 8, 0)]) == continuation(PROMPT, 1, VOCAB)


@pytest.mark.parametrize(("prompt", "at"), [([1, *PROMPT[1:]], 8), (PROMPT, 16)])
def test_a_state_of_other_tokens_is_not_gone_on_from(prompt: list[int], at: int) -> None:
    """CK6, SG7: whoever sent it there was wrong; the request fails alone."""
    node = Node()
    node.add(0, PROMPT)
    node.run(started=[start(0, 18)], checkpoints=[order(0, 8)])
    node.add(1, prompt)
    report, outputs = node.run(started=[start(1, 18 - at, at, 0)])
    assert report.finished == [(1, FinishReason.ERROR, 0)]
    ((_, _, _, failure),) = [ended for output in outputs for ended in output.finished]
    assert (
        failure is not None and failure.message == f"the recurrent state is that of position 0, not of {at}"
    )
    assert node.tokens() == continuation(PROMPT, 3, VOCAB)[2:]


def test_what_a_failed_row_was_to_keep_is_not_there() -> None:
    """CK2, CK3."""
    node = Node(SimFailures(fail_token=9))
    node.add(0, PROMPT)
    node.add(1, [1] * 18)
    report, _ = node.run(started=[start(0, 18), start(1, 18)], checkpoints=[order(0, 8), order(1, 8, slot=1)])
    assert report.checkpoint_positions == [0, 8]
    assert node.core.checkpoints.position_of(0) == 0


def test_a_copy_that_fails_ends_the_process() -> None:
    """CK6: nobody would know whose state it is."""
    node = Node()
    node.add(0, PROMPT)
    batch = node.core.apply(StepDelta(1, 1, started=[start(0, 18)])).batch
    with pytest.raises(RunnerBrokenError, match="recurrent states cannot be copied"):
        run_step(node.runner, [], batch, state_copies=[StateCopy(0, 0, 3, is_restored=True)])


def test_a_state_goes_out_before_its_place_is_written_over_and_comes_back_to_another() -> None:
    """X13: the third step saves what the checkpoint holds, and keeps another state there; the last one brings that back
    to another checkpoint, of which a row goes on."""
    node, expected = Node(), continuation(PROMPT, 5, VOCAB)
    node.add(0, PROMPT)
    node.run(started=[start(0, 18)], checkpoints=[order(3, 8)])
    node.add(1, [*range(40, 56)])
    out = BlockCopy(3, False, 1, True, STATES_NUMBER)
    node.run(started=[start(1, 16)], checkpoints=[order(3, 8, slot=1)], copies=[out])
    node.add(2, PROMPT)
    back = BlockCopy(1, True, 0, False, STATES_NUMBER)
    blocks = np.array([0, 1, *range(18, 24)], np.int32)
    tokens = node.tokens(started=[SlotStart(2, blocks, 8, 10, (), 0)], copies=[back])
    assert expected[0] in tokens and not node.core.checkpoints.restore(SlotStart(2, blocks, 8, 10, (), 3))


def test_a_state_that_was_copied_elsewhere_is_not_gone_on_from() -> None:
    """CK6, X13: the worker looks itself, and the request fails alone."""
    node = Node()
    node.add(0, PROMPT)
    node.run(started=[start(0, 18)], checkpoints=[order(3, 8)])
    node.run(copies=[BlockCopy(3, False, 1, True, STATES_NUMBER)])
    node.add(1, PROMPT)
    back = BlockCopy(1, True, 2, False, STATES_NUMBER)
    report, _ = node.run(started=[start(1, 10, 8, 0)], copies=[back])
    assert [slot for slot, _ in report.not_run] == [1]


def test_of_states_of_decoding_none_is_kept_where_prompts_alone_count() -> None:
    """CK11. A chunk that ends at 16 leaves a prompt's state; the row that passes 24, and stands on it, does not. What
    a preemption has had computed again is a prompt's."""
    states = StateGroup(BOUNDARY, 4, prompts_only=True)
    node = Node(info=replace(INFO, state_group=states))
    node.add(0, PROMPT)
    node.run(started=[start(0, 16)], checkpoints=[order(0, 8)])
    report, _ = node.run(checkpoints=[order(1)], chunks=[(0, 16, 2)])
    assert report.checkpoint_positions == [16]
    for _ in range(6):
        node.run()
    assert node.core.states.num_tokens[0] == 24
    assert [node.run(checkpoints=[order(2)])[0].checkpoint_positions for _ in range(2)] == [[0], [0]]
    report, _ = node.run(preempted_slots=[0])
    node.run(resumed=[start(0, 24)], checkpoints=[order(3, 24)])
    assert [node.core.checkpoints.position_of(number) for number in range(4)] == [8, 16, 0, 24]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"checkpoints": [order(4)]}, "names a checkpoint that is none of 4"),
        ({"started": [start(0, 8, 8, 4)]}, "names a checkpoint that is none of 4"),
        ({"checkpoints": [order(1), order(1, 8)]}, "writes a checkpoint twice"),
        ({"checkpoints": [order(1)], "resumed": [start(1, 8, 8, 1)]}, "one that a slot is to go on from"),
        ({"checkpoints": [order(1, slot=4)]}, "names slot 4"),
        ({"copies": [BlockCopy(4, False, 0, True, 1)]}, "copies block 4 of group 1, and there are 4"),
        (
            {"copies": [BlockCopy(0, False, 2, True, 1)]},
            "block 2 of the host tier of group 1, and there are 2",
        ),
        ({"copies": [BlockCopy(0, False, 0, True, 2)]}, "copies a block of group 2, and there is none"),
        (
            {"checkpoints": [order(1)], "copies": [BlockCopy(0, True, 1, False, 1)]},
            "writes a checkpoint twice",
        ),
    ],
)
def test_orders_that_fit_no_worker(changes: dict[str, list[object]], reason: str) -> None:
    """K10, CK7."""
    misfit = misfit_of(StepDelta(1, 1, **changes), Bounds.of(INFO, 4, 100))  # type: ignore[arg-type]
    assert misfit is not None and reason in misfit
