"""Bugs planted on purpose: the simulation has to find each of them, or it proves nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from scheduler_svc.core import report_reader, starts, step_builder
from scheduler_svc.core.prefix_sharing import Prefix
from scheduler_svc.core.request import Request
from scheduler_svc.core.request_table import RequestTable, SlotState
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.side_copies import end_fence
from scheduler_svc.core.step import Chunk, StepDecision
from scheduler_svc.core.worker import Worker
from tests.simulation.random_scenario import Scenario

BUDGET = 400
"""Scenarios within which a planted bug has to show."""


def seal_without_generation_check(patch: pytest.MonkeyPatch) -> None:
    """Publishes a block although it has been given to somebody else since."""

    def always(worker: Worker, slots: np.ndarray, indexes: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return np.ones(len(slots), np.bool_)

    patch.setattr(report_reader, "still_theirs", always)


def slot_reused_before_its_report(patch: pytest.MonkeyPatch) -> None:
    """Frees a slot when its release is sent, not when the step's report is back."""
    release = step_builder._release

    def release_and_free(worker: Worker, step: StepDecision) -> None:
        release(worker, step)
        for slot in step.finished_slots:
            worker.table.free(slot)

    patch.setattr(step_builder, "_release", release_and_free)
    real = RequestTable.free
    patch.setattr(
        RequestTable, "free", lambda table, slot: real(table, slot) if table.state[slot] == 4 else None
    )


def count_advanced_at_scheduling(patch: pytest.MonkeyPatch) -> None:
    """Counts a chunk as computed when it is sent: the placeholder that this design does without."""
    send = starts._Starter._send_chunk

    def send_and_count(starter: starts._Starter, slot: int) -> Chunk:
        chunk = send(starter, slot)
        starter._worker.table.num_computed[slot] = chunk.start + chunk.length
        return chunk

    patch.setattr(starts._Starter, "_send_chunk", send_and_count)


def news_of_another_attempts_grammar_believed(patch: pytest.MonkeyPatch) -> None:
    """Takes a late event for one of whoever holds the slot now."""

    def believe(
        scheduler: Scheduler, worker_id: str, slot: int, request_id: str, attempt: int
    ) -> Request | None:
        table = scheduler.workers[worker_id].table
        return table.requests[slot] if table.state[slot] == SlotState.PREPARING else None

    patch.setattr(Scheduler, "_preparing", believe)


def decode_row_behind_a_pooling_request(patch: pytest.MonkeyPatch) -> None:
    """Settles a pooling request as if its final chunk had sampled a token."""

    def settle(worker: Worker, slot: int) -> None:
        worker.table.bound[slot] = worker.table.target[slot] + 1
        worker.settling.append(slot)

    patch.setattr(Worker, "settle", settle)


def fence_ended_before_its_copies(patch: pytest.MonkeyPatch) -> None:
    """Gives blocks away while they are copied beside the steps."""
    copy_aside = starts.copy_aside

    def copy_and_end(worker: Worker, slot: int, prefix: Prefix, num_new: int, step: StepDecision) -> None:
        copy_aside(worker, slot, prefix, num_new, step)
        end_fence(worker, step.step_id, failed=False)

    patch.setattr(starts, "copy_aside", copy_and_end)


RULES_AND_OUTPUTS, OUTPUTS_ONLY = True, False


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("plant", "checks_rules"),
    [
        (seal_without_generation_check, RULES_AND_OUTPUTS),
        (seal_without_generation_check, OUTPUTS_ONLY),
        (slot_reused_before_its_report, RULES_AND_OUTPUTS),
        (slot_reused_before_its_report, OUTPUTS_ONLY),
        # A leading count harms nobody until something reads it: only the rules can see it.
        (count_advanced_at_scheduling, RULES_AND_OUTPUTS),
        (news_of_another_attempts_grammar_believed, OUTPUTS_ONLY),
        (decode_row_behind_a_pooling_request, OUTPUTS_ONLY),
        (fence_ended_before_its_copies, RULES_AND_OUTPUTS),
        (fence_ended_before_its_copies, OUTPUTS_ONLY),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], checks_rules: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not checks_rules:
        monkeypatch.setattr(Scenario, "check", lambda self: None)
    plant(monkeypatch)
    for number in range(BUDGET):
        scenario = Scenario(1000 + number // 2, (2, 4)[number % 2], 0, faults=False)
        try:
            scenario.run()
            assert scenario.scheduler.num_divergences == 0
        except Exception as found:
            print(f"found in scenario {number + 1}: {type(found).__name__}: {found}")
            return
    pytest.fail(f"{plant.__name__} was not found in {BUDGET} scenarios")


def test_without_a_planted_bug_the_same_scenarios_pass() -> None:
    outcomes = [Scenario(1000 + n // 2, (2, 4)[n % 2], 0, faults=False).run() for n in range(40)]
    assert len(outcomes) == 40
