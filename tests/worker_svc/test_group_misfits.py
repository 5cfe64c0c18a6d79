"""Steps that do not fit a worker's groups of blocks are refused (K10, WB3), and what the worker is done with is no
reason to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from signalbox.protocol.block_groups import BlockGroup
from signalbox.protocol.enums import BlockGroupKind
from worker_svc.core.batch import BlockCopy, RunnerInfo
from worker_svc.core.requests.sampling import SamplingParams
from worker_svc.core.step import NewRequest, RequestRef, SlotStart, StepDelta
from worker_svc.core.worker_core import WorkerCore
from worker_svc.links.delta import build_snapshot
from worker_svc.runner.sim.model import SimRunner
from worker_svc.steps.misfit import Bounds, misfit_of, misfit_with

WINDOW = BlockGroup(BlockGroupKind.WINDOW, 6, 8, num_host_blocks=2)
INFO = RunnerInfo(
    "sim",
    num_blocks=32,
    block_size=4,
    max_model_len=64,
    vocab_size=100,
    eos_token_ids=(),
    groups=(WINDOW,),
    num_slots=4,
)


def ids(*blocks: int) -> Any:
    return np.array(blocks, np.int32)


def begin(slot: int, blocks: Any, group: tuple[int, Any], start: int = 0, length: int = 13) -> SlotStart:
    return SlotStart(slot, blocks, start, length, (group,))


class Bench:
    """Slot 0 has run 13 tokens of its prompt, in blocks 0 to 3 of the spine and of the group; slot 1 has not begun."""

    def __init__(self) -> None:
        self.core, self.runner = WorkerCore(INFO, 4), SimRunner(INFO)
        for slot in (0, 1):
            tokens = np.arange(13, dtype=np.int32)
            ref = RequestRef(f"r{slot}", slot + 1, "f")
            self.core.add(NewRequest(slot, ref, tokens, 0, 20, SamplingParams(), b""))
        self.run(StepDelta(1, 1, started=[begin(0, ids(0, 1, 2, 3), (0, ids(0, 1, 2, 3)))]))

    def run(self, delta: StepDelta) -> None:
        assert self.misfit(delta) is None
        step = self.core.apply(delta)
        self.core.commit(step, self.runner.execute(step.batch), {})
        self.core.table.check_integrity()

    def misfit(self, delta: StepDelta) -> str | None:
        bounds = Bounds.of(INFO, 4, 100)
        return misfit_of(delta, bounds) or misfit_with(delta, self.core.table)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"started": [SlotStart(1, ids(4, 5, 6, 7), 0, 13)]}, "without its blocks in 1 groups"),
        (
            {"started": [begin(1, ids(4, 5, 6, 7), (0, ids(4, 5, 6, 8)))]},
            "block of group 1 that is none of 8",
        ),
        ({"started": [begin(1, ids(4, 5, 6, 7), (0, ids(4, 5)))]}, "blocks 0 to 2 of a group, up to 13"),
        ({"started": [begin(1, ids(4, 5, 6, 7), (1, ids(4, 5, 6)))]}, "starts at 0 with blocks 1 to 4"),
        ({"started": [begin(1, ids(4, 5, 6, 7), (0, ids(4, 5, 6, 6)))]}, "a block twice"),
        ({"started": [begin(1, ids(4, 5, 6, 7), (0, ids(4, 5, 6, 3)))]}, "block 3 is to be written"),
        ({"group_grants": [(2, np.array([0]), ids(5))]}, "names a group"),
        ({"group_grants": [(1, np.array([0]), ids(8))]}, "none of 8"),
        ({"group_grants": [(1, np.array([9]), ids(5))]}, "slot 9"),
        ({"group_grants": [(1, np.array([0]), ids(3))]}, "block 3 is to be written"),
        ({"group_grants": [(1, np.array([3]), ids(5))]}, "holds no request"),
        ({"copies": [BlockCopy(0, True, 3, False, 1)]}, "block 3 is to be written"),
        ({"copies": [BlockCopy(0, True, 8, False, 1)]}, "copies block 8 of group 1, and there are 8"),
        ({"copies": [BlockCopy(2, True, 5, False, 1)]}, "block 2 of the host tier of group 1"),
    ],
)
def test_what_does_not_fit_a_group_is_refused(changes: dict[str, Any], problem: str) -> None:
    """K10, GR2."""
    bench = Bench()
    assert problem in (bench.misfit(StepDelta(2, 1, **changes)) or "it fits")


def test_a_block_behind_a_window_may_be_written_by_another() -> None:
    """WB3: at 13 a query looks at 8 and on, in the third block; nobody has said that the others are free."""
    bench = Bench()
    bench.run(StepDelta(2, 1, started=[begin(1, ids(4, 5, 6, 7), (0, ids(1, 0, 5, 6)))]))
    table = bench.core.table.groups[0]
    assert (int(table.firsts[0]), table.table(1).tolist()) == (2, [1, 0, 5, 6])
    snapshot = build_snapshot(bench.core)
    firsts = [slot.group_tables[0].first for slot in snapshot.slots]
    assert firsts == [2, 2], "what a slot is done with is not told as its own"


def test_a_slot_may_be_preempted_and_start_again_in_one_step() -> None:
    """K3: with nothing in flight its length is exact."""
    bench = Bench()
    again = begin(0, ids(4, 5, 6, 7), (0, ids(4, 5, 6, 7)), length=14)
    assert bench.misfit(StepDelta(2, 1, resumed=[again])) == "it starts slot 0, which runs"
    bench.run(StepDelta(2, 1, preempted_slots=[0], resumed=[again]))
    assert bench.core.table.num_output(0) == 2
