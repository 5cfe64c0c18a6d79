"""Spans of what a worker does for a traced request: prefill, then decode, anew after each preemption.

Owned by the step thread. A step costs what its changes cost, and only for slots that hold a traced request.
"""

from __future__ import annotations

from dataclasses import dataclass

from signalbox.protocol.enums import FinishReason
from signalbox.telemetry import attributes as names
from signalbox.telemetry.spans import Attributes, Span, Tracer
from worker_svc.core.requests.request_state import RequestTable, SlotStatus
from worker_svc.core.running_step import RunningStep
from worker_svc.core.step import StepDelta, StepReport


@dataclass
class _Run:
    """What a slot does since it was started or resumed."""

    span: Span
    first_step: int
    num_before: int
    """Tokens computed before a prefill, or output tokens before a decode."""


@dataclass
class _Traced:
    """A slot that holds a traced request."""

    template: Span
    """Never exported: each run is a sibling of it."""
    has_output: bool
    run: _Run | None = None


class RunSpans:
    """The traced slots of this worker."""

    def __init__(self, tracer: Tracer, worker_id: str, table: RequestTable) -> None:
        self._tracer = tracer
        self._worker_id = worker_id
        self._table = table
        self._slots: dict[int, _Traced] = {}

    def __bool__(self) -> bool:
        """Some slot is traced: steps are to be told."""
        return bool(self._slots)

    def added(self, slot: int, traceparent: str, tracestate: str, at_s: float) -> None:
        """A request moved into its slot; whoever was there is gone."""
        self._slots.pop(slot, None)
        template = self._tracer.start(names.SPAN_PREFILL, traceparent, tracestate, at_s)
        ref = self._table.refs[slot]
        if template is None or ref is None:
            return
        template.attributes |= {
            names.REQUEST_ID: ref.request_id,
            names.ATTEMPT: ref.attempt,
            names.WORKER_ID: self._worker_id,
        }
        self._slots[slot] = _Traced(template, has_output=self._table.num_output(slot) > 0)

    def stepped(
        self, delta: StepDelta, step: RunningStep, report: StepReport, started_s: float, done_s: float
    ) -> None:
        """A step has run, from `started_s` to `done_s`."""
        step_id = delta.step_id
        for slot in delta.finished_slots:
            traced = self._slots.pop(slot, None)
            if traced is not None:
                self._end(traced, slot, step_id, names.EVENT_RELEASED, started_s)
        for slot in delta.preempted_slots:
            if slot in self._slots:
                self._end(self._slots[slot], slot, step_id, names.EVENT_PREEMPTED, started_s)
        for starts, is_resumed in ((delta.resumed, True), (delta.started, False)):
            for start in starts:
                if start.slot in self._slots:
                    self._start(self._slots[start.slot], step_id, start.start, is_resumed, started_s)
        for chunk in step.chunks:
            if chunk.slot in self._slots and self._table.status[chunk.slot] != SlotStatus.PREFILL:
                self._decode(self._slots[chunk.slot], chunk.slot, step_id, done_s)
        for slot, reason, _ in report.finished:
            if slot in self._slots:
                self._finish(self._slots[slot], slot, step_id, reason, done_s)

    def _start(self, traced: _Traced, step_id: int, num_computed: int, is_resumed: bool, at_s: float) -> None:
        span = self._sibling(traced, names.SPAN_PREFILL, at_s)
        span.attributes[names.NUM_CACHED_TOKENS] = num_computed
        if is_resumed:
            span.event(names.EVENT_RESUMED, at_s)
        traced.run = _Run(span, step_id, num_computed)

    def _decode(self, traced: _Traced, slot: int, step_id: int, at_s: float) -> None:
        """The prefill is done and has sampled a token; the rest is decode."""
        run = traced.run
        if run is None:
            return
        if not traced.has_output and self._table.num_output(slot):
            traced.has_output = True
            run.span.event(names.EVENT_FIRST_TOKEN, at_s)
        if self._table.status[slot] != SlotStatus.DECODE:
            return  # it ended with that token: `_finish` closes the prefill
        self._close(run, int(self._table.prefill_target[slot]), step_id, at_s)
        span = self._sibling(traced, names.SPAN_DECODE, at_s)
        traced.run = _Run(span, step_id + 1, self._table.num_output(slot))

    def _finish(self, traced: _Traced, slot: int, step_id: int, reason: FinishReason, at_s: float) -> None:
        failure = self._table.failures[slot]
        attributes = {names.REASON: reason.name.lower()}
        error = failure.message if failure is not None else None
        if traced.run is not None and failure is not None:
            traced.run.span.attributes[names.ERROR_TYPE] = failure.code
        self._end(traced, slot, step_id, names.EVENT_FINISHED, at_s, attributes, error)

    def _end(
        self,
        traced: _Traced,
        slot: int,
        step_id: int,
        event: str,
        at_s: float,
        attributes: Attributes | None = None,
        error: str | None = None,
    ) -> None:
        """Ends the run that goes on, if one does."""
        run, traced.run = traced.run, None
        if run is None:
            return
        run.span.event(event, at_s, attributes or {})
        is_prefill = run.span.name == names.SPAN_PREFILL
        table = self._table
        num_tokens = int(table.prefill_target[slot]) if is_prefill else table.num_output(slot)
        self._close(run, num_tokens, step_id, at_s, error)

    def _close(self, run: _Run, num_tokens: int, step_id: int, at_s: float, error: str | None = None) -> None:
        run.span.attributes[names.NUM_TOKENS] = num_tokens - run.num_before
        run.span.attributes[names.NUM_STEPS] = max(step_id - run.first_step + 1, 0)
        run.span.end(at_s, error)

    def _sibling(self, traced: _Traced, name: str, at_s: float) -> Span:
        span = traced.template.sibling(name, at_s)
        span.attributes |= traced.template.attributes
        return span
