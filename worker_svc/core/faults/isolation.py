"""Runs a batch so that one bad request fails alone, and none for a model that fails on anything."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from worker_svc.core.batch import Batch, BlockCopy, ModelRunner, Sampled, StateCopy

logger = logging.getLogger(__name__)
C = TypeVar("C")
V = TypeVar("V")


class RunnerBrokenError(Exception):
    """The model fails on anything, so no request is to blame: the process has to end, for another to take its place.
    Its requests go on elsewhere."""


def run_step(
    runner: ModelRunner,
    copies: list[BlockCopy],
    batch: Batch,
    then: Callable[[], None] | None = None,
    state_copies: Sequence[StateCopy] = (),
) -> tuple[Sampled, dict[int, str]]:
    """Makes the copies, those of states behind those of blocks (X13), calls `then`, and executes `batch`. Raises
    RunnerBrokenError, also when a copy fails: what it should have brought or saved may be others' by then (X9)."""
    _copy("blocks", runner.copy_blocks, copies)
    _copy("recurrent states", runner.copy_states, list(state_copies))
    if then is not None:
        then()
    return execute_isolated(runner, batch)


def _copy(what: str, make: Callable[[list[C]], None], copies: list[C]) -> None:
    """Makes the copies of `what`. RunnerBrokenError when one fails."""
    try:
        if copies:
            make(copies)
    except Exception as error:
        raise RunnerBrokenError(f"{what} cannot be copied ({_text(error)})") from error


def execute_isolated(runner: ModelRunner, batch: Batch) -> tuple[Sampled, dict[int, str]]:
    """Executes `batch`; when that fails, halves it until the rows that make it fail stand alone.

    Running a row again is harmless: it writes the same KV at the same positions. Returns the samples (0 for those of
    failed rows) and the failed rows with what they raised. Raises RunnerBrokenError, before any row is run again.
    """
    if not len(batch.slots):
        return Sampled(np.empty(0, np.int32)), {}
    outcome = _execute(runner, batch)
    if isinstance(outcome, Sampled):
        return outcome, {}
    check_alive(runner, outcome)
    return _find_culprits(runner, batch, outcome)


def _execute(runner: ModelRunner, batch: Batch) -> Sampled | str:
    """The samples, or why there are none. Not the exception: it holds on to the step's memory, which a check or a
    smaller batch may need."""
    try:
        return runner.execute(batch)
    except Exception as error:
        if len(batch.slots) == 1:
            logger.exception("a request failed in the model")
        return _text(error)


def check_alive(runner: ModelRunner, failure: str) -> None:
    """Raises RunnerBrokenError if it was not for the batch that something failed."""
    try:
        runner.check()
    except Exception as error:
        raise RunnerBrokenError(
            f"the model fails on a single token ({_text(error)}); before, a step had failed: {failure}"
        ) from error


def _find_culprits(runner: ModelRunner, batch: Batch, failure: str) -> tuple[Sampled, dict[int, str]]:
    """What a batch that failed samples without the rows that make it fail, found by running parts of it, and why each
    fails."""
    rows = len(batch.slots)
    if rows == 1:
        return _nothing(batch), {0: failure}
    half = rows // 2
    first, failed_first = _execute_part(runner, batch.rows(0, half))
    second, failed_second = _execute_part(runner, batch.rows(half, rows))
    offset = len(first.token_ids)
    sampled = Sampled(
        token_ids=np.concatenate((first.token_ids, second.token_ids)),
        logprobs=first.logprobs | _shifted(second.logprobs, offset),
        prompt_logprobs=first.prompt_logprobs | _shifted(second.prompt_logprobs, half),
        pooled=first.pooled | _shifted(second.pooled, half),
        bad_rows=np.concatenate((first.bad_rows, second.bad_rows + np.int32(half))),
    )
    return sampled, failed_first | _shifted(failed_second, half)


def _execute_part(runner: ModelRunner, part: Batch) -> tuple[Sampled, dict[int, str]]:
    outcome = _execute(runner, part)
    return (outcome, {}) if isinstance(outcome, Sampled) else _find_culprits(runner, part, outcome)


def _nothing(batch: Batch) -> Sampled:
    return Sampled(np.zeros(len(batch.sample_index), np.int32))


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _shifted(values: dict[int, V], by: int) -> dict[int, V]:
    return {by + number: value for number, value in values.items()}
