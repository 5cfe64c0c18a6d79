"""Where requests wait for their grammar: asks for it, and says what came of it. Belongs to the step thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from signalbox.protocol.enums import FinishReason
from worker_svc.core.step import Failure, FrontendOutput, NewRequest, RequestRef
from worker_svc.core.worker_core import WorkerCore
from worker_svc.grammar.preparation import FIELD, GrammarPreparation, Prepared


@dataclass(frozen=True)
class FirstMask:
    """The first mask of a request has been made, whose grammar was ready before."""

    slot: int
    ref: RequestRef


@dataclass(frozen=True)
class GrammarResult:
    """What the scheduler is told of a request that waited for its grammar, and its frontend if it ended."""

    slot: int
    ref: RequestRef
    is_ready: bool
    """Whether the request may start; else it has ended."""
    failure: Failure | None = None
    """Why it ended; None: with what it had, which was complete."""
    outputs: list[FrontendOutput] = field(default_factory=list)


class GrammarCoordinator:
    """Stands between the core and the thread that prepares grammars."""

    def __init__(
        self,
        core: WorkerCore,
        preparation: GrammarPreparation | None,
        post: Callable[[Prepared | FirstMask], None],
        on_grammar_result: Callable[[GrammarResult], None],
    ) -> None:
        """preparation: None: requests with a form are refused. post: brings what was prepared to `take`, and a
        first mask to `take_mask`, in the step thread."""
        self._core, self._preparation = core, preparation
        self._post, self._on_grammar_result = post, on_grammar_result
        self._ended: dict[int, GrammarResult] = {}
        """What ended here, by slot, until the scheduler has acknowledged it."""
        self._unmasked: dict[int, RequestRef] = {}
        """Whose grammar is ready and whose first mask is being made, by slot."""

    def add(self, request: NewRequest) -> None:
        """A request has moved into the core."""
        self.forget([request.slot])
        if request.failure is not None:
            if request.tells_early:
                self._end(request.slot, request.ref, FinishReason.ERROR, request.failure)
        elif request.form is not None:
            if self._preparation is None:
                failure = Failure("UnsupportedError", f"this worker cannot follow {FIELD}", FIELD)
                self._end(request.slot, request.ref, FinishReason.ERROR, failure)
                return
            prior = request.token_ids[len(request.token_ids) - request.num_prior_output_tokens :]
            self._preparation.begin(request.slot, request.ref, request.form, prior, self._post)

    def forget(self, slots: list[int]) -> None:
        """The requests in `slots` are gone: none of them waits for a grammar any more."""
        for slot in slots:
            self._ended.pop(slot, None)
            self._unmasked.pop(slot, None)
            if self._preparation is not None:
                self._preparation.cancel(slot)

    def take(self, prepared: Prepared) -> None:
        """What came of a request's grammar; the request may be gone."""
        slot, ref, automaton = prepared.slot, prepared.ref, prepared.automaton
        if automaton is None:
            self._end(slot, ref, FinishReason.ERROR, prepared.failure)
        elif automaton.is_complete:  # by the output of an earlier attempt, whose end was lost
            self._end(slot, ref, FinishReason.STOP, None)
        elif self._core.take_grammar(slot, ref, automaton):
            self._say_ready(slot, ref)

    def take_mask(self, first: FirstMask) -> None:
        """The first mask of a request has been made; the request may be gone, or this may be known."""
        slot, ref = first.slot, first.ref
        if self._unmasked.get(slot) == ref and slot in self._core.ready_slots():
            self._say_ready(slot, ref)

    def announce(self) -> None:
        """Says once more which requests may start, and which have ended, to a scheduler that is being greeted: when our
        snapshot was made they may still have been waiting."""
        for slot in self._core.ready_slots():
            ref = self._core.table.refs[slot]
            assert ref is not None
            self._say_ready(slot, ref)
        for result in self._ended.values():
            self._on_grammar_result(result)

    def _say_ready(self, slot: int, ref: RequestRef) -> None:
        """Says that a request may start, unless its first mask has to be made: then that is said later (G12)."""
        if self._core.has_first_mask(slot, lambda: self._post(FirstMask(slot, ref))):
            self._unmasked.pop(slot, None)
            self._on_grammar_result(GrammarResult(slot, ref, is_ready=True))
        else:
            self._unmasked[slot] = ref

    def _end(self, slot: int, ref: RequestRef, reason: FinishReason, failure: Failure | None) -> None:
        outputs = self._core.end_early(slot, ref, reason, failure)
        if outputs:
            self._ended[slot] = GrammarResult(slot, ref, is_ready=False, failure=failure)
            self._on_grammar_result(replace(self._ended[slot], outputs=outputs))
