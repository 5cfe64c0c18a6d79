"""Failures of the simulated model, on request: for tests of what a worker and a ring make of a model that fails."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker_svc.core.batch import Batch


class SimulatedFailureError(Exception):
    """The simulated model was asked to fail."""


@dataclass(frozen=True)
class SimFailures:
    """What goes wrong. Nothing does by default."""

    fail_token: int | None = None
    """Every step fails on a request whose prompt contains this token."""
    fail_step: int | None = None
    """The step of this number fails with all of its rows, however they are run again; counted from 1."""
    break_step: int | None = None
    """Number of the step, counted from 1, from which on the device is lost: everything fails, whoever's it is. None:
    never."""
    hang_token: int | None = None
    """A step takes `hang_ms` longer when it computes a part of a prompt that contains this token."""
    hang_ms: float = 0.0
    nan_token: int | None = None
    """A row that computes this token as a part of a prompt has no finite numbers in that step."""
    crash_token: int | None = None
    """A step that computes this token as a part of a prompt kills the process by SIGSEGV."""


class FailingModel:
    """Knows how many steps have run, and makes the chosen ones fail or hang."""

    def __init__(self, failures: SimFailures) -> None:
        self._failures = failures
        self._num_steps = 0
        """Different steps with rows so far."""
        self._last_step_id = -1
        self._failing_step_id: int | None = None
        """Id of the step whose number is `fail_step`: it may be run again behind the one after it."""

    def check(self, batch: Batch) -> None:
        """Raises SimulatedFailureError if `batch`, a step or a part of one that is about to run, is to fail."""
        failures = self._failures
        self._count(batch.step_id)
        self.check_device()
        if failures.hang_token is not None and _has_prompt(batch, failures.hang_token, batch.num_decode_rows):
            time.sleep(failures.hang_ms / 1e3)
        if failures.crash_token is not None and _computes(batch, failures.crash_token).any():
            os.kill(os.getpid(), signal.SIGSEGV)
        if batch.step_id == self._failing_step_id:
            raise SimulatedFailureError(f"step {failures.fail_step} was to fail")
        if failures.fail_token is not None and _has_prompt(batch, failures.fail_token, 0):
            raise SimulatedFailureError(f"prompts with token {failures.fail_token} were to fail")

    def bad_rows(self, batch: Batch) -> NDArray[np.int32]:
        """Rows whose numbers are not finite, as `Sampled` has them."""
        token = self._failures.nan_token
        if token is None:
            return np.empty(0, np.int32)
        return np.flatnonzero(_computes(batch, token)).astype(np.int32)

    def _count(self, step_id: int) -> None:
        if step_id <= self._last_step_id:
            return
        self._num_steps, self._last_step_id = self._num_steps + 1, step_id
        if self._num_steps == self._failures.fail_step:
            self._failing_step_id = step_id

    def check_device(self) -> None:
        """Raises SimulatedFailureError once the device is lost."""
        first = self._failures.break_step
        if first is not None and self._num_steps >= first:
            raise SimulatedFailureError(f"the device was to be lost in step {first}")


def _has_prompt(batch: Batch, token: int, first_row: int) -> bool:
    """One of the rows from `first_row` on belongs to a request whose prompt contains `token`."""
    slots = batch.slots[first_row:]
    return any(token in batch.tokens[slot, : batch.num_prompt_tokens[slot]] for slot in slots)


def _computes(batch: Batch, token: int) -> NDArray[np.bool_]:
    """[R] rows that compute `token` at a position of their prompt."""
    rows = np.repeat(np.arange(len(batch.slots)), batch.query_lengths)
    is_prompt = batch.positions < batch.num_prompt_tokens[batch.slots[rows]]
    return np.bincount(rows[is_prompt & (batch.token_ids == token)], minlength=len(batch.slots)) > 0
