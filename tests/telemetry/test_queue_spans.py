"""The scheduler's spans, from the decisions of the real core."""

from __future__ import annotations

import pytest

from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.requests.request import Request
from scheduler_svc.tracing import QueueSpans
from tests.scheduler_svc.harness import WORKER, make_request, make_scheduler, report_for
from tests.telemetry.recorder import TRACEPARENT, Recorder


class Traced:
    """A core whose time is set by hand."""

    def __init__(self, **settings: object) -> None:
        self.core: Scheduler = make_scheduler(watermark_blocks_per_seq=0, **settings)  # type: ignore[arg-type]
        self.now = 0.0
        self.tracer = Recorder()
        self.spans = QueueSpans(self.tracer)
        self.core.register.on_end = lambda request: self.spans.ended(request, self.now)

    def submit(self, request: Request) -> None:
        self.core.submit(request, self.now)
        self.spans.submitted(request, self.now, self.core.num_waiting)

    def step(self) -> None:
        step = self.core.schedule(WORKER, self.now)
        assert step is not None
        self.spans.stepped(self.core.workers[WORKER], step, self.now)
        self.core.update(WORKER, report_for(self.core), self.now)
        self.now += 1


@pytest.fixture
def traced() -> Traced:
    return Traced(num_blocks=6, max_num_seqs=2)


def test_waiting_is_a_span(traced: Traced) -> None:
    traced.submit(make_request("a", 4, traceparent=TRACEPARENT))
    traced.now = 3.0
    traced.step()
    assert traced.tracer.told() == [("queue", 0.0, 3.0, ["submitted", "placed"])]
    assert not len(traced.spans)


def test_requests_without_a_trace_cost_nothing(traced: Traced) -> None:
    traced.submit(make_request("a", 4))
    traced.step()
    assert traced.tracer.told() == []


def test_a_preempted_stay_is_a_span(traced: Traced) -> None:
    """Two requests outgrow six blocks of four tokens; the younger one waits until the older has ended."""
    older = make_request("older", 8, max_tokens=8)
    younger = make_request("younger", 8, max_tokens=8, traceparent=TRACEPARENT)
    traced.submit(older)
    traced.submit(younger)
    while not younger.history.num_preemptions:
        traced.step()
    began = traced.now - 1
    traced.core.finish(older.key, 1)
    while len(traced.spans):
        traced.step()
    name, start, end, events = traced.tracer.told()[-1]
    assert (name, start, events) == ("queue", began, ["preempted", "resumed"])
    assert end > start
    assert traced.tracer.spans[-1].attributes["signalbox.queue.reason"] == "preempted"
    assert not traced.tracer.spans[-1].links  # it is the same attempt


def test_a_cancel_in_the_queue_ends_the_span(traced: Traced) -> None:
    request = make_request("a", 4, traceparent=TRACEPARENT)
    traced.submit(request)
    traced.now = 2.0
    traced.core.cancel(request.key, 1)
    assert traced.tracer.told() == [("queue", 0.0, 2.0, ["submitted", "cancelled"])]


def test_a_new_attempt_ends_the_stay_of_the_old_one(traced: Traced) -> None:
    traced.submit(make_request("a", 4, traceparent=TRACEPARENT))
    traced.submit(make_request("a", 4, traceparent=TRACEPARENT, attempt=2))
    traced.step()
    assert [events for _, _, _, events in traced.tracer.told()] == [
        ["submitted", "cancelled"],
        ["submitted", "placed"],
    ]
    assert [span.attributes["signalbox.request.attempt"] for span in traced.tracer.spans] == [1, 2]
    first, second = traced.tracer.spans
    assert (first.links, second.links) == ([], [first.context])


def test_an_attempt_after_a_loss_is_linked_to_the_one_before(traced: Traced) -> None:
    traced.submit(make_request("a", 4, traceparent=TRACEPARENT))
    traced.step()
    traced.submit(make_request("a", 4, traceparent=TRACEPARENT, attempt=2))
    traced.submit(make_request("b", 4, traceparent=TRACEPARENT, attempt=9))
    traced.step()
    by_name = {
        (s.attributes["signalbox.request.id"], s.attributes["signalbox.request.attempt"]): s
        for s in traced.tracer.spans
    }
    assert by_name["a", 2].links == [by_name["a", 1].context]
    assert by_name["b", 9].links == []


def test_decisions_tell_their_numbers(traced: Traced) -> None:
    """Six blocks of four tokens, of which a prompt of eight takes two and the next token's a third."""
    traced.submit(make_request("a", 8))
    traced.submit(make_request("b", 8, traceparent=TRACEPARENT))
    traced.step()
    (span,) = traced.tracer.spans
    (_, _, submitted), (_, _, placed) = span.events
    assert submitted == {"signalbox.decision.num_waiting": 2}
    assert placed["signalbox.worker.id"] == WORKER
    assert placed["signalbox.decision.num_running"] == traced.core.workers[WORKER].table.num_running
    free, cached = (placed[f"signalbox.decision.num_{kind}_blocks"] for kind in ("free", "cached"))
    assert (free, cached) == (
        traced.core.workers[WORKER].pool.num_free,
        traced.core.workers[WORKER].pool.num_cached,
    )
    assert placed["signalbox.decision.step_id"] == 1
