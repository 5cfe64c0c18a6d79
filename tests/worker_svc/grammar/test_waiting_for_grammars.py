"""Requests that wait for their grammar, in a real step loop: nobody else waits with them, and each hears its end."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from tokenizers import Tokenizer

from signalbox.cli.ring.ring import DEMO_MODEL
from signalbox.grammar.form import Form, FormError, FormKind
from signalbox.grammar.limits import FormLimits
from signalbox.protocol.enums import FinishReason
from signalbox.runtime.parts import FAILURES
from signalbox.v1 import from_frontend_pb2, from_worker_pb2, generation_pb2, shared_pb2, to_worker_pb2
from worker_svc.core.batch import RunnerInfo
from worker_svc.core.requests.automaton import Automaton
from worker_svc.core.requests.masks import I32, U32
from worker_svc.core.step import RequestRef
from worker_svc.core.worker_core import WorkerCore
from worker_svc.grammar.compiler import GrammarCompiler
from worker_svc.grammar.coordinator import GrammarResult
from worker_svc.grammar.preparation import Compiler, GrammarPreparation, Prepared, make_preparation
from worker_svc.runner.sim.model import SimRunner
from worker_svc.steps.loop import StepLoop, StepResult

INFO = RunnerInfo("m", num_blocks=64, block_size=4, max_model_len=64, vocab_size=4096, eos_token_ids=(0,))
TIMEOUT_S = 60
TEXT = Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))
PROMPT = [5, 6, 7]


def regex(pattern: str) -> generation_pb2.StructuredOutput:
    return generation_pb2.StructuredOutput(regex=pattern)


def new_request(
    slot: int, form: generation_pb2.StructuredOutput | None, prior: list[int] | None = None, attempt: int = 1
) -> to_worker_pb2.NewRequestData:
    tokens = np.array([*PROMPT, *(prior or [])], "<i4")
    payload = generation_pb2.RequestPayload(
        token_ids=tokens.tobytes(),
        num_prior_output_tokens=len(prior or []),
        sampling=generation_pb2.SamplingParams(structured_output=form),
    )
    return to_worker_pb2.NewRequestData(
        slot=slot,
        ref=shared_pb2.RequestRef(request_id=f"r{slot}", attempt=attempt),
        frontend_instance="f",
        scheduler_meta=from_frontend_pb2.RequestMeta(has_grammar=form is not None).SerializeToString(),
        payload=payload.SerializeToString(),
        max_tokens=20,
        num_known_tokens=len(tokens),
    )


def step(
    number: int, starts: list[int] | None = None, finished: list[int] | None = None
) -> to_worker_pb2.SchedulerOutput:
    slots = starts or []
    return to_worker_pb2.SchedulerOutput(
        step_id=number,
        scheduler_epoch=1,
        scheduled_new_reqs=to_worker_pb2.ScheduledNewReqs(
            slots=np.array(slots, "<u2").tobytes(),
            block_counts=np.full(len(slots), 6, "<u4").tobytes(),
            block_ids=np.concatenate([np.arange(s * 6, s * 6 + 6) for s in slots] or [[]])
            .astype("<u4")
            .tobytes(),
            num_computed_tokens=np.zeros(len(slots), "<u4").tobytes(),
            num_scheduled_tokens=np.full(len(slots), len(PROMPT), "<u4").tobytes(),
        ),
        finished_slots=np.array(finished or [], "<u2").tobytes(),
    )


class Gate:
    """A compiler that waits until it is let go."""

    def __init__(self, inner: Compiler) -> None:
        self.inner, self.entered, self.open = inner, threading.Event(), threading.Event()

    def automaton(self, form: Form) -> Automaton:
        self.entered.set()
        assert self.open.wait(TIMEOUT_S)
        return self.inner.automaton(form)

    def close(self) -> None:
        self.open.set()
        self.inner.close()


class Broken:
    """A compiler that fails."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def automaton(self, form: Form) -> Automaton:
        raise self.error

    def close(self) -> None:
        pass


@dataclass
class Bench:
    """A running step loop and what it says."""

    loop: StepLoop
    results: queue.SimpleQueue[StepResult]
    told_results: queue.SimpleQueue[GrammarResult]

    def put(
        self,
        *requests: to_worker_pb2.NewRequestData,
        steps: list[to_worker_pb2.SchedulerOutput] | None = None,
    ) -> None:
        self.loop.put(to_worker_pb2.AttachWorkerResponse(new_requests=requests, steps=steps or []))

    def told(self) -> GrammarResult:
        return self.told_results.get(timeout=TIMEOUT_S)

    def result(self) -> StepResult:
        return self.results.get(timeout=TIMEOUT_S)

    def settle(self) -> from_worker_pb2.WorkerSnapshot | None:
        """Everything that was put has been taken."""
        return self.loop.snapshot().result(TIMEOUT_S)


Make = Callable[[GrammarPreparation | None], Bench]


@pytest.fixture(scope="module")
def compiler() -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(
        DEMO_MODEL / "tokenizer.json", INFO.vocab_size, INFO.eos_token_ids, FormLimits()
    )
    yield compiler
    compiler.close()


@pytest.fixture
def make() -> Iterator[Make]:
    benches: list[Bench] = []

    def build(preparation: GrammarPreparation | None) -> Bench:
        results, told_results = queue.SimpleQueue[StepResult](), queue.SimpleQueue[GrammarResult]()
        core, runner = WorkerCore(INFO, num_slots=4), SimRunner(INFO)
        loop = StepLoop(
            core,
            runner,
            results.put,
            lambda reason: None,
            preparation=preparation,
            on_grammar_result=told_results.put,
        )
        loop.start()
        benches.append(Bench(loop, results, told_results))
        return benches[-1]

    yield build
    for bench in benches:
        bench.loop.stop(TIMEOUT_S)
        assert bench.loop.failure is None


def test_a_schema_being_compiled_stops_nobody(make: Make, compiler: GrammarCompiler) -> None:
    """G2."""
    gate = Gate(compiler)
    bench = make(GrammarPreparation(gate))
    properties = {f"field_{i}": {"type": "string", "maxLength": i} for i in range(120)}
    schema = json.dumps({"type": "object", "properties": properties, "required": list(properties)})
    assert len(schema) > 5000
    bench.put(new_request(0, generation_pb2.StructuredOutput(json_schema=schema)), new_request(1, None))
    assert gate.entered.wait(TIMEOUT_S)
    bench.put(steps=[step(1, starts=[1]), *(step(number) for number in range(2, 9))])
    tokens = [bench.result().outputs[0].token_ids.tolist() for _ in range(8)]
    assert all(len(made) == 1 for made in tokens) and bench.told_results.empty()
    gate.open.set()
    told = bench.told()
    assert told.is_ready and told.slot == 0 and told.ref.request_id == "r0"


def test_a_form_that_cannot_be_compiled_ends_its_request_at_once(
    make: Make, compiler: GrammarCompiler
) -> None:
    bench = make(GrammarPreparation(compiler))
    bench.put(new_request(0, regex("(")))
    told = bench.told()
    assert not told.is_ready and told.failure is not None
    assert (told.failure.code, told.failure.field) == (
        "InvalidRequestError",
        "structured_output",
    )
    assert "unclosed group" in told.failure.message
    ((attempt, reason, count, failure),) = told.outputs[0].finished
    assert (attempt, reason, count, failure) == (1, FinishReason.ERROR, 0, told.failure)
    bench.put(steps=[step(1, finished=[0])])
    assert not bench.result().outputs
    snapshot = bench.settle()
    assert snapshot is not None and not snapshot.slots


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FormError("is odd"), "InvalidRequestError"),
        (TimeoutError("the machine is too busy"), "ResourceExhaustedError"),
        (RuntimeError("the process is gone"), "InternalError"),
    ],
)
def test_whatever_the_compiler_raises_ends_the_request(make: Make, error: Exception, code: str) -> None:
    bench = make(GrammarPreparation(Broken(error)))
    bench.put(new_request(0, regex("a")))
    told = bench.told()
    assert told.failure is not None and told.failure.code == code and str(error) in told.failure.message


class PanicError(BaseException):
    """As pyo3 raises one when the library panics."""


def test_a_panic_of_the_library_costs_its_own_request(make: Make, compiler: GrammarCompiler) -> None:
    """LO1: the thread goes on, and the next one gets its grammar."""
    broken = Broken(PanicError("index out of bounds"))
    bench = make(GrammarPreparation(broken))
    bench.put(new_request(0, regex("a")))
    told = bench.told()
    assert told.failure is not None and "index out of bounds" in told.failure.message
    broken.automaton = compiler.automaton  # type: ignore[method-assign]
    bench.put(new_request(1, regex("b")))
    assert bench.told().failure is None


def test_whoever_waits_for_a_thread_that_has_ended_is_told(compiler: GrammarCompiler) -> None:
    """LO1: those that wait, and those that come later."""
    preparation, told = GrammarPreparation(compiler), queue.SimpleQueue[Prepared]()

    def die(prepared: Prepared) -> None:
        raise PanicError

    form, nothing = Form(FormKind.REGEX, "a"), np.empty(0, np.int32)
    for slot, done in ((0, die), (1, told.put)):
        preparation.begin(slot, RequestRef(f"r{slot}", 1, "f"), form, nothing, done)
    preparation._thread.join()
    preparation.begin(2, RequestRef("r2", 1, "f"), form, nothing, told.put)
    for slot in (1, 2):
        prepared = told.get(timeout=TIMEOUT_S)
        assert prepared.slot == slot and prepared.failure is not None
    assert "grammars" in FAILURES.ended


def test_without_grammars_a_form_is_refused_by_name(make: Make) -> None:
    bench = make(None)
    bench.put(new_request(0, regex("a")))
    told = bench.told()
    assert told.failure is not None and told.failure.code == "UnsupportedError"
    assert told.failure.field == "structured_output" and len(told.outputs) == 1


def test_a_request_that_cannot_be_read_is_not_waited_for(make: Make, compiler: GrammarCompiler) -> None:
    bench = make(GrammarPreparation(compiler))
    broken = new_request(0, regex("a"))
    broken.payload = b"\xff"
    bench.put(broken)
    told = bench.told()
    assert told.failure is not None and "payload" in told.failure.message and len(told.outputs) == 1
    bench.put(new_request(1, generation_pb2.StructuredOutput()))
    told = bench.told()
    assert told.failure is not None and "has no form" in told.failure.message


def test_what_is_ready_is_said_again_until_it_has_started(make: Make, compiler: GrammarCompiler) -> None:
    """J7."""
    bench = make(GrammarPreparation(compiler))
    bench.put(new_request(0, regex("a+")), new_request(1, regex("b+")))
    assert {bench.told().slot, bench.told().slot} == {0, 1}
    bench.loop.announce()
    again = [bench.told(), bench.told()]
    assert {(told.slot, told.is_ready) for told in again} == {
        (0, True),
        (1, True),
    }
    bench.put(steps=[step(1, starts=[0])])
    bench.loop.announce()
    assert bench.told().slot == 1
    bench.settle()
    assert bench.told_results.empty()


def test_a_grammar_that_comes_when_its_request_is_gone_is_dropped(
    make: Make, compiler: GrammarCompiler
) -> None:
    gate = Gate(compiler)
    bench = make(GrammarPreparation(gate))
    bench.put(new_request(0, regex("a+")))
    assert gate.entered.wait(TIMEOUT_S)
    bench.put(steps=[step(1, finished=[0])])
    bench.put(new_request(0, regex("b+"), attempt=2))
    bench.settle()
    gate.open.set()
    assert bench.told().ref.attempt == 2
    bench.settle()
    assert bench.told_results.empty()


class HeldMasks(Gate):
    """A compiler of automata whose masks wait until they are let go."""

    def automaton(self, form: Form) -> Automaton:
        automaton = self.inner.automaton(form)
        fill = automaton.fill

        def wait_and_fill(drafts: I32, bits: U32) -> None:
            self.entered.set()
            assert self.open.wait(TIMEOUT_S)
            fill(drafts, bits)

        automaton.fill = wait_and_fill  # type: ignore[method-assign]
        return automaton


def test_a_request_may_start_when_its_first_mask_is_made(make: Make, compiler: GrammarCompiler) -> None:
    """G12, J7: that is said without a step, and to a scheduler that says hello no sooner."""
    held = HeldMasks(compiler)
    bench = make(GrammarPreparation(held))
    bench.put(new_request(0, regex("a+")))
    assert held.entered.wait(TIMEOUT_S)
    bench.loop.announce()
    bench.settle()
    assert bench.told_results.empty()
    held.open.set()
    told = bench.told()
    assert (told.slot, told.is_ready) == (0, True)
    bench.settle()
    assert bench.told_results.empty(), "it is said once"
    bench.loop.announce()
    assert bench.told().is_ready


def test_a_first_mask_that_comes_when_its_request_is_gone_is_dropped(
    make: Make, compiler: GrammarCompiler
) -> None:
    held = HeldMasks(compiler)
    bench = make(GrammarPreparation(held))
    bench.put(new_request(0, regex("a+")))
    assert held.entered.wait(TIMEOUT_S)
    bench.settle()
    bench.put(steps=[step(1, finished=[0])])
    bench.put(new_request(0, regex("b+"), attempt=2))
    bench.settle()
    held.open.set()
    assert bench.told().ref.attempt == 2
    bench.settle()
    assert bench.told_results.empty()


class Recorder(Gate):
    """A gate that notes the forms it was asked for."""

    def __init__(self, inner: Compiler) -> None:
        super().__init__(inner)
        self.asked: list[str] = []

    def automaton(self, form: Form) -> Automaton:
        self.asked.append(form.text)
        return super().automaton(form)


def test_what_was_cancelled_is_not_compiled(make: Make, compiler: GrammarCompiler) -> None:
    recorder = Recorder(compiler)
    bench = make(GrammarPreparation(recorder))
    bench.put(*(new_request(slot, regex(form)) for slot, form in enumerate(("a+", "b+", "c+", "d+"))))
    assert recorder.entered.wait(TIMEOUT_S)
    bench.put(steps=[step(1, finished=[1, 3])])
    bench.result()
    bench.put(new_request(3, None, attempt=2))
    recorder.open.set()
    assert {bench.told().slot, bench.told().slot} == {0, 2}
    bench.settle()
    assert recorder.asked == ["a+", "c+"] and bench.told_results.empty()


def test_many_requests_of_one_form_hold_up_no_other_form(make: Make, compiler: GrammarCompiler) -> None:
    recorder = Recorder(compiler)
    bench = make(GrammarPreparation(recorder))
    bench.put(new_request(0, regex("a+")))
    assert recorder.entered.wait(TIMEOUT_S)
    bench.put(new_request(1, regex("a+")), new_request(2, regex("a+")), new_request(3, regex("b+")))
    bench.settle()
    recorder.open.set()
    assert {bench.told().slot for _ in range(4)} == {0, 1, 2, 3}
    assert recorder.asked == ["a+", "a+", "b+", "a+"]


def test_a_grammar_that_is_announced_and_not_there_ends_its_request(
    make: Make, compiler: GrammarCompiler
) -> None:
    bench = make(GrammarPreparation(compiler))
    given = new_request(0, None)
    given.scheduler_meta = from_frontend_pb2.RequestMeta(has_grammar=True).SerializeToString()
    bench.put(given)
    told = bench.told()
    assert not told.is_ready and told.failure is not None and len(told.outputs) == 1
    assert (told.failure.code, told.failure.field) == (
        "InvalidRequestError",
        "structured_output",
    )


def test_a_resumed_request_goes_on_behind_its_output(make: Make, compiler: GrammarCompiler) -> None:
    """G5."""
    bench = make(GrammarPreparation(compiler))
    form, output = regex("(ab|cd)+x"), TEXT.encode("abcd").ids
    bench.put(new_request(0, form, prior=output))
    assert bench.told().is_ready
    bench.put(new_request(1, form, prior=TEXT.encode("abx").ids))
    told = bench.told()
    assert (told.is_ready, told.failure) == (False, None), "complete: its end was lost, not its output"
    ((_, reason, count, failure),) = told.outputs[0].finished
    assert (reason, count, failure) == (FinishReason.STOP, len(TEXT.encode("abx").ids), None)
    bench.put(new_request(2, form, prior=TEXT.encode("xyz").ids))
    told = bench.told()
    assert told.failure is not None and told.failure.code == "InvalidRequestError"


def test_a_model_without_tokenizer_or_end_token_prepares_nothing(tmp_path: object) -> None:
    assert make_preparation(None, INFO, FormLimits()) is None
    assert make_preparation(tmp_path, INFO, FormLimits()) is None  # type: ignore[arg-type]
    without_end = RunnerInfo(
        "m", num_blocks=4, block_size=4, max_model_len=8, vocab_size=4096, eos_token_ids=()
    )
    assert make_preparation(DEMO_MODEL, without_end, FormLimits()) is None
