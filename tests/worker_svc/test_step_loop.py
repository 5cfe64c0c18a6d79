"""The step thread outlives whoever asks it."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

from signalbox.grammar.form import Form
from signalbox.v1 import from_frontend_pb2, generation_pb2, shared_pb2, to_worker_pb2
from worker_svc.core.batch import RunnerInfo
from worker_svc.core.step import Failure, RequestRef
from worker_svc.core.worker_core import WorkerCore
from worker_svc.grammar.coordinator import GrammarResult
from worker_svc.grammar.preparation import Prepared
from worker_svc.runner.sim.model import SimRunner
from worker_svc.steps.loop import StepLoop, StepResult

INFO = RunnerInfo("sim", num_blocks=8, block_size=4, max_model_len=32, vocab_size=100, eos_token_ids=())


def test_a_snapshot_that_nobody_waits_for_any_more_ends_nothing() -> None:
    results = queue.SimpleQueue[StepResult]()
    loop = StepLoop(WorkerCore(INFO, num_slots=4), SimRunner(INFO), results.put, lambda reason: None)
    assert loop.snapshot().cancel()
    later = loop.snapshot()
    loop.start()
    assert later.result(10) is None
    loop.stop(10)
    assert loop.failure is None


class SlowPreparation:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.begun: queue.SimpleQueue[tuple[int, RequestRef, Callable[[Prepared], None]]] = (
            queue.SimpleQueue()
        )

    def begin(
        self, slot: int, ref: RequestRef, form: Form, prior: Any, post: Callable[[Prepared], None]
    ) -> None:
        """As `GrammarPreparation`."""
        self.begun.put((slot, ref, post))

    def cancel(self, slot: int) -> None:
        """As `GrammarPreparation`."""


def request_with_a_form() -> to_worker_pb2.NewRequestData:
    """In slot 1."""
    sampling = generation_pb2.SamplingParams(structured_output=generation_pb2.StructuredOutput(regex="("))
    payload = generation_pb2.RequestPayload(token_ids=bytes(16), sampling=sampling)
    return to_worker_pb2.NewRequestData(
        slot=1,
        ref=shared_pb2.RequestRef(request_id="r", attempt=1),
        frontend_instance="f",
        scheduler_meta=from_frontend_pb2.RequestMeta(has_grammar=True).SerializeToString(),
        payload=payload.SerializeToString(),
        num_known_tokens=4,
        max_tokens=8,
    )


def test_a_grammar_that_fails_behind_a_snapshot_is_told_to_the_scheduler_that_gets_it() -> None:
    """J7: nobody hears the verdict between the snapshot, which says PREPARING, and the new link."""
    preparation, verdicts = SlowPreparation(), queue.SimpleQueue[GrammarResult]()
    loop = StepLoop(
        WorkerCore(INFO, num_slots=4),
        SimRunner(INFO),
        lambda result: None,
        lambda reason: None,
        preparation=preparation,  # type: ignore[arg-type]
        on_grammar_result=verdicts.put,
    )
    loop.start()
    loop.put(to_worker_pb2.AttachWorkerResponse(new_requests=[request_with_a_form()]))
    slot, ref, post = preparation.begun.get(timeout=10)
    loop.snapshot().result(10)
    post(Prepared(slot, ref, None, Failure("InvalidRequestError", "no such grammar")))
    first = verdicts.get(timeout=10)
    assert first.outputs and not first.is_ready, "its frontend is told once"
    loop.announce()
    again = verdicts.get(timeout=10)
    assert (again.slot, again.ref, again.failure) == (slot, ref, first.failure)
    assert not again.is_ready and not again.outputs
    acknowledged = to_worker_pb2.SchedulerOutput(step_id=1, scheduler_epoch=1, finished_slots=b"\1\0")
    loop.put(to_worker_pb2.AttachWorkerResponse(steps=[acknowledged]))
    loop.announce()
    loop.snapshot().result(10)
    assert verdicts.empty()
    loop.stop(10)
    assert loop.failure is None
