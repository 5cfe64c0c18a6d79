"""Frontends come and go; the worker keeps none for longer than its requests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.worker_svc.core.test_worker_core import make_core, new, run, start
from worker_svc.core.output_sorter import OutputSorter
from worker_svc.core.requests.request_state import RequestTable
from worker_svc.core.step import RequestRef, StepDelta


def test_each_frontend_hears_of_its_own_requests() -> None:
    core, runner = make_core()
    owners = ["a", "b", "a"]
    for slot, owner in enumerate(owners):
        core.add(replace(new(slot, [slot + 1, 2, 3]), ref=RequestRef(f"r{slot}", slot + 1, owner)))
    starts = [start(slot, [slot], 3) for slot in range(3)]
    _, outputs = run(core, runner, StepDelta(1, 1, started=starts))
    heard = {output.frontend_instance: output.attempts.tolist() for output in outputs}
    assert heard == {"a": [1, 3], "b": [2]}


def test_a_frontend_is_forgotten_with_its_last_request() -> None:
    """Ten thousand frontends, each gone before the next but one comes."""
    sorter = OutputSorter(RequestTable(4, 16, 4, 16))
    for number in range(10_000):
        sorter.add(number % 2, f"frontend {number}")
        if number:
            sorter.remove((number - 1) % 2)
    assert sorter.num_frontends == 1


def test_a_slot_that_is_taken_over_is_the_next_frontends() -> None:
    core, runner = make_core()
    for attempt, owner in ((1, "a"), (2, "b"), (3, "a")):
        core.add(replace(new(0, [1, 2, 3]), ref=RequestRef("r", attempt, owner)))
    _, (output,) = run(core, runner, StepDelta(1, 1, started=[start(0, [0], 3)]))
    assert (output.frontend_instance, output.attempts.tolist()) == ("a", [3])
    assert np.array_equal(output.starts, [0])


def test_what_a_prompt_found_is_said_with_its_first_outputs() -> None:
    """The scheduler's word for it may come behind the end of a short request."""
    core, runner = make_core()
    for slot in range(3):
        core.add(replace(new(slot, [slot + 1, *range(2, 8)]), ref=RequestRef(f"r{slot}", slot + 1, "f")))
    starts = [
        replace(start(slot, [2 * slot, 2 * slot + 1], 7 - found), start=found)
        for slot, found in enumerate((4, 0, 4))
    ]
    _, (first,) = run(core, runner, StepDelta(1, 1, started=starts[:2]))
    assert first.found == [(1, 4)]
    _, (second,) = run(core, runner, StepDelta(2, 2, started=starts[2:]))
    assert second.found == [(3, 4)], "and never again"


def test_a_preempted_request_found_what_it_found_first() -> None:
    core, _ = make_core()
    core.add(new(0, [1, 2, 3, 4, 5]))
    table = core.table
    table.start(0, np.array([0, 1], np.int32), 4)
    table.preempt(0)
    table.start(0, np.array([0, 1], np.int32), 0)
    assert table.num_found[0] == 4
    table.legs[0] = 2
    table.fill(new(0, [1, 2, 3, 4, 5]))
    assert table.num_found[0] == 0
