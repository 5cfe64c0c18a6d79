"""Suspects of a crash (docs/liveness.md, S1 to S4): who is one, that they run alone, and when they are cleared."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler_svc.core.explain.explanation import explain
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.evidence import Exit
from scheduler_svc.core.state.requests.notices import Lost
from scheduler_svc.core.state.steps.step import StepDecision, StepReport
from signalbox.protocol.enums import LossCause, WorkerExit
from tests.scheduler_svc.harness import (
    WORKER,
    make_request,
    make_scheduler,
    name_of,
    report_for,
    tokens_by_name,
)


def submit(
    scheduler: Scheduler, *names: str, num_crashes: int = 0, num_prompt: int = 6, **fields: object
) -> None:
    for name in names:
        scheduler.submit(make_request(name, num_prompt, num_crashes=num_crashes, **fields), 0.0)


def run(scheduler: Scheduler) -> dict[str, int]:
    """Sends a step, reports the oldest one; tokens by name of the one that was sent, none when there was none."""
    step = scheduler.schedule(WORKER, 0.0)
    tokens = {} if step is None else tokens_by_name(scheduler, step)
    scheduler.check_integrity()
    if scheduler.workers[WORKER].records:
        scheduler.update(WORKER, report_for(scheduler), 0.0)
    scheduler.check_integrity()
    return tokens


def last(scheduler: Scheduler) -> StepDecision | None:
    return scheduler.schedule(WORKER, 0.0)


@pytest.mark.parametrize("inflight", [1, 2, 4])
def test_a_suspect_runs_alone_and_takes_turns_with_all_others(inflight: int) -> None:
    """S2: three chunks of the suspect, with a step of the others between."""
    scheduler = make_scheduler(
        max_inflight_steps=inflight, max_num_batched_tokens=8, max_num_seqs=4, just_in_time_steps=False
    )
    submit(scheduler, "a", "b", num_prompt=4)
    run(scheduler)
    submit(scheduler, "poison", num_crashes=1, num_prompt=20)
    turns = [run(scheduler) for _ in range(9)]
    turns = [turn for turn in turns if turn]
    assert turns[:7] == [
        {"poison": 8},
        {"a": 1, "b": 1},
        {"poison": 8},
        {"a": 1, "b": 1},
        {"poison": 4},
        {"a": 1, "b": 1, "poison": 1},
        {"a": 1, "b": 1, "poison": 1},
    ]
    assert not scheduler.register.suspects, "S3: with its first new token it is like all others"


def test_a_step_is_sent_ahead_neither_of_a_suspect_nor_behind_it() -> None:
    """S2: alone in flight."""
    scheduler = make_scheduler(max_inflight_steps=2, just_in_time_steps=False)
    submit(scheduler, "a")
    assert last(scheduler) is not None and last(scheduler) is not None
    submit(scheduler, "poison", num_crashes=1)
    assert last(scheduler) is None
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    assert last(scheduler) is None, "a step is still in flight"
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    step = last(scheduler)
    assert step is not None and step.num_decode_rows == 0 and len(step.started) == 1
    assert [name_of(scheduler.workers[WORKER], slot) for slot in step.paused_slots] == ["a"]
    assert last(scheduler) is None, "nothing is sent behind it"
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    step = last(scheduler)
    assert step is not None and len(step.unpaused_slots) == 1 and step.num_decode_rows == 2
    scheduler.check_integrity()


def test_suspects_take_turns_among_themselves() -> None:
    """S2: never two in one step."""
    scheduler = make_scheduler(max_inflight_steps=2)
    submit(scheduler, "x", "y", "z", num_crashes=1)
    turns = []
    while scheduler.register.suspects:
        turns.append(run(scheduler))
    assert turns == [{"x": 6}, {"x": 1}, {"y": 6}, {"x": 1, "y": 1}, {"z": 6}]


def test_a_crash_in_a_step_of_a_suspect_alone_costs_nobody_else_anything() -> None:
    """S1, S4: it is the only suspect; the others have lost their worker."""
    scheduler = make_scheduler(max_inflight_steps=2)
    submit(scheduler, "a", "b")
    run(scheduler)
    submit(scheduler, "poison", num_crashes=1)
    while not scheduler.workers[WORKER].records or not scheduler.workers[WORKER].records[0].is_solo:
        if scheduler.schedule(WORKER, 0.0) is None:
            scheduler.update(WORKER, report_for(scheduler), 0.0)
    scheduler.drain_notices()
    process = scheduler.workers[WORKER].process
    scheduler.worker_ended(process, Exit(WorkerExit.CRASHED, "", 1.0), 1.0)
    scheduler.detach_worker(WORKER, 1.0)
    causes = {n.key.request_id: n.cause for n in scheduler.drain_notices() if isinstance(n, Lost)}
    assert causes == {
        "poison": LossCause.CRASH,
        "a": LossCause.WORKER_GONE,
        "b": LossCause.WORKER_GONE,
    }
    assert not scheduler.register.suspects
    scheduler.check_integrity()


@pytest.mark.parametrize(
    ("step_id", "suspects"),
    [(0, {"a"}), (1, {"a"}), (2, {"a", "poison"}), (9, {"a"})],
    ids=["not known", "the first", "the second", "none of ours"],
)
def test_the_step_that_its_guardian_names_has_the_suspects(step_id: int, suspects: set[str]) -> None:
    """S1: the report of the step before may have been lost with the process."""
    scheduler = make_scheduler(max_inflight_steps=2, just_in_time_steps=False)
    submit(scheduler, "a")
    assert last(scheduler) is not None
    submit(scheduler, "poison")
    assert last(scheduler) is not None
    assert [record.step_id for record in scheduler.workers[WORKER].records] == [1, 2]
    scheduler.drain_notices()
    process = scheduler.workers[WORKER].process
    scheduler.worker_ended(process, Exit(WorkerExit.CRASHED, "", 1.0, step_id), 1.0)
    scheduler.detach_worker(WORKER, 1.0)
    causes = {n.key.request_id: n.cause for n in scheduler.drain_notices() if isinstance(n, Lost)}
    assert {name for name, cause in causes.items() if cause is LossCause.CRASH} == suspects
    assert causes.keys() == {"a", "poison"}


def test_a_row_that_was_not_run_clears_nobody() -> None:
    """S3: only a token does."""
    scheduler = make_scheduler(max_inflight_steps=1)
    submit(scheduler, "poison", num_crashes=1)
    step = last(scheduler)
    assert step is not None
    slot = step.started[0].chunk.slot
    report = StepReport(1, 0, 6, np.array([slot]), np.array([0]), not_run=[(slot, 2)])
    scheduler.update(WORKER, report, 0.0)
    assert scheduler.register.suspects
    assert [run(scheduler) for _ in range(3)] == [{}, {"poison": 6}, {"poison": 1}]
    assert not scheduler.register.suspects


def test_whoever_is_paused_or_ends_beside_a_suspect_is_told_once() -> None:
    """S2: between the step of a suspect and the next one clients pause, cancel, and go on."""
    scheduler = make_scheduler(max_inflight_steps=1)
    names = ("stays", "pauses", "ends")
    submit(scheduler, *names)
    run(scheduler)
    run(scheduler)
    keys = {name: make_request(name, 1).key for name in names}
    slots = {name: scheduler.requests[keys[name]].slot for name in names}
    submit(scheduler, "poison", num_crashes=1)
    step = last(scheduler)
    assert step is not None and sorted(step.paused_slots) == sorted(slots.values())  # type: ignore[type-var]
    scheduler.set_paused(keys["pauses"], 1, True)
    scheduler.cancel(keys["ends"], 1)
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    step = last(scheduler)
    assert step is not None
    assert step.unpaused_slots == [slots["stays"]] and step.finished_slots == [slots["ends"]]
    assert step.paused_slots == [], "it is paused there already"
    scheduler.check_integrity()


def test_explanations_know_of_suspects() -> None:
    scheduler = make_scheduler(max_inflight_steps=1, max_num_batched_tokens=64)
    submit(scheduler, "a")
    last(scheduler)
    submit(scheduler, "poison", num_crashes=1, num_prompt=100)
    request = scheduler.requests[make_request("poison", 1).key]
    assert "step of its own" in explain(scheduler, request, 0.0).sentence
    scheduler.update(WORKER, report_for(scheduler), 0.0)
    last(scheduler)
    assert "it may have caused a crash" in explain(scheduler, request, 0.0).sentence
