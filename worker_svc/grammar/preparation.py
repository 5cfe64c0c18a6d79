"""Makes the automata of new requests, beside the steps."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from signalbox.grammar.form import Form, FormError
from signalbox.grammar.limits import FormLimits
from signalbox.runtime.parts import start_thread
from worker_svc.core.batch import RunnerInfo
from worker_svc.core.requests.automaton import Automaton, FormLimitError, GrammarError
from worker_svc.core.step import Failure, RequestRef
from worker_svc.grammar.compiler import GrammarCompiler
from worker_svc.grammar.form_queue import FormQueue

logger = logging.getLogger(__name__)

FIELD = "structured_output"
CLOSE_S = 5.0


class Compiler(Protocol):
    """Makes automata at the start of forms, and takes its time for it."""

    def automaton(self, form: Form) -> Automaton:
        """An automaton at the start of `form`. Raises what `GrammarCompiler.automaton` does."""

    def close(self) -> None:
        """Ends what compiles: nothing more is asked."""


@dataclass(frozen=True)
class Prepared:
    """The automaton of a request, or why there is none."""

    slot: int
    ref: RequestRef
    automaton: Automaton | None
    failure: Failure | None = None


@dataclass(frozen=True)
class _Wanted:
    """A request that waits for its automaton."""

    slot: int
    ref: RequestRef
    form: Form
    prior_output: NDArray[np.int32]
    done: Callable[[Prepared], None]


class GrammarPreparation:
    """A thread that prepares one request after another; the forms take turns."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._waiting: FormQueue[_Wanted] = FormQueue()
        self._has_ended = False
        """An error has ended the thread: nothing can be prepared."""
        # A process that fails does not wait for it: a compiler cannot be interrupted.
        self._thread = start_thread("grammars", self._run, self._ended)

    def begin(
        self,
        slot: int,
        ref: RequestRef,
        form: Form,
        prior_output: NDArray[np.int32],
        done: Callable[[Prepared], None],
    ) -> None:
        """Prepares the automaton of a request that goes on behind `prior_output`; then calls `done`, in the thread."""
        self._waiting.put(slot, form, _Wanted(slot, ref, form, prior_output, done))
        if self._has_ended:
            self._refuse_waiting()

    def cancel(self, slot: int) -> None:
        """The slot's request is gone; nothing is prepared for it unless that has begun."""
        self._waiting.remove(slot)

    def close(self) -> None:
        """What has not begun is dropped; what has is waited for, up to CLOSE_S."""
        self._waiting.close()
        self._compiler.close()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while (wanted := self._waiting.take()) is not None:
            wanted.done(self._prepare(wanted))

    def _ended(self, error: BaseException) -> None:
        self._has_ended = True
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        """Whoever waits is told: the requests end, and go on elsewhere if their clients ask again."""
        failure = Failure("InternalError", f"{FIELD} cannot be prepared by this worker any more")
        while (wanted := self._waiting.take_now()) is not None:
            wanted.done(Prepared(wanted.slot, wanted.ref, None, failure))

    def _prepare(self, wanted: _Wanted) -> Prepared:
        slot, ref = wanted.slot, wanted.ref
        try:
            automaton = self._compiler.automaton(wanted.form)
            for token in wanted.prior_output.tolist():
                automaton.advance(token)
        except FormError as error:
            return Prepared(slot, ref, None, Failure("InvalidRequestError", f"{FIELD} {error}", FIELD))
        except FormLimitError as error:
            return Prepared(slot, ref, None, Failure("InvalidRequestError", f"{FIELD} {error}", FIELD))
        except GrammarError as error:
            message = f"the earlier output does not follow {FIELD}: {error}"
            return Prepared(slot, ref, None, Failure("InvalidRequestError", message, FIELD))
        except TimeoutError as error:  # the machine is too busy: as a frontend has it, a later try may do
            message = f"{FIELD} could not be prepared: {error}"
            return Prepared(slot, ref, None, Failure("ResourceExhaustedError", message, FIELD))
        except BaseException as error:  # whatever it is, a panic of the library too: the request must end
            logger.exception("no grammar could be made for request %s", ref.request_id)
            message = f"{FIELD} could not be prepared: {type(error).__name__}: {error}"
            return Prepared(slot, ref, None, Failure("InternalError", message, FIELD))
        return Prepared(slot, ref, automaton)


def make_preparation(
    model_dir: Path | None, info: RunnerInfo, limits: FormLimits
) -> GrammarPreparation | None:
    """The thread that prepares grammars for a model; None: no form can be followed without a tokenizer and a token
    that ends outputs."""
    if model_dir is None or not (model_dir / "tokenizer.json").is_file() or not info.eos_token_ids:
        logger.warning(
            "requests with a form of output are refused: the model has no tokenizer.json or no end token"
        )
        return None
    return GrammarPreparation(
        GrammarCompiler(model_dir / "tokenizer.json", info.vocab_size, info.eos_token_ids, limits)
    )
