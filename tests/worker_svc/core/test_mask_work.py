"""What a worker reports of the work of automata (docs/design.md, Q7, Q8)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.worker_svc.core.test_constrained_rows import ENTRY, Bench, Ladder
from worker_svc.core.requests.mask_work import REPORT_US
from worker_svc.links.delta import build_report


class Working(Ladder):
    """Each mask takes so many microseconds."""

    def __init__(self, mask_us: int) -> None:
        super().__init__(ENTRY)
        self.mask_us = mask_us

    def fill(self, drafts: NDArray[np.int32], masks: NDArray[np.uint32]) -> None:
        self.work_us += self.mask_us * (1 + len(drafts))
        super().fill(drafts, masks)


def test_a_slot_is_named_when_a_millisecond_has_gathered() -> None:
    bench = Bench()
    bench.add(0, Working(REPORT_US // 2))
    bench.add(1, Working(3 * REPORT_US))
    reports = [bench.start(0, 1), *(bench.step() for _ in range(3))]
    assert [report.mask_us for report in reports] == [
        [(1, 3 * REPORT_US)],
        [(0, REPORT_US), (1, 3 * REPORT_US)],
        [(1, 3 * REPORT_US)],
        [(0, REPORT_US), (1, 3 * REPORT_US)],
    ]


def test_the_end_names_what_is_left() -> None:
    bench = Bench()
    bench.add(0, Working(10), max_tokens=2)
    assert bench.start(0).mask_us == []
    assert bench.step().mask_us == [(0, 20)]
    assert bench.step().mask_us == [], "it was named"


def test_a_request_that_goes_is_named_with_the_step_that_says_so() -> None:
    bench = Bench()
    bench.add(0, Working(10))
    bench.start(0)
    assert bench.step(finished_slots=[0]).mask_us == [(0, 10)]
    assert bench.step().mask_us == []


def test_what_is_left_of_a_slot_is_not_its_next_requests() -> None:
    bench = Bench()
    bench.add(0, Working(10))
    bench.start(0)
    bench.add(0, None, form=None)
    bench.output.clear()
    assert bench.start(0).mask_us == []


def test_work_for_earlier_output_is_not_named() -> None:
    bench = Bench()
    automaton = Working(REPORT_US)
    automaton.work_us = 50 * REPORT_US
    bench.add(0, automaton)
    assert bench.start(0).mask_us == [(0, REPORT_US)]


def test_own_steps_are_named_with_the_first_report_after_them() -> None:
    bench = Bench()
    bench.add(0, Working(REPORT_US))
    bench.start(0)
    assert bench.step(is_own=True).mask_us == []
    assert bench.step().mask_us == [(0, 2 * REPORT_US)]


def test_without_forms_nothing_is_on_the_wire() -> None:
    bench = Bench()
    bench.add(0, None, form=None)
    message = build_report(bench.start(0))
    assert not message.mask_slots
    assert not message.mask_us
