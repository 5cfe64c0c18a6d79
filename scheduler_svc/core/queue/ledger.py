"""What every account has had, in virtual tokens: counters as in "Fairness in Serving Large Language Models" (OSDI'24).

A counter rises by `w_in` per prompt token that was computed and by `w_out` per output token, divided by the tenant's
weight. What is computed a second time, after a preemption or a loss, and drafts that are rejected, cost nothing; what
the prefix cache saves costs nothing either.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler_svc.core.state.steps.step import Slots, StepRecord, StepReport
from scheduler_svc.core.state.worker import Worker


class Ledger:
    """The counters of all accounts, as columns by account index."""

    def __init__(self, input_weight: float, output_weight: float, credit: float) -> None:
        self.input_weight, self.output_weight = input_weight, output_weight
        self.credit = credit
        """Virtual tokens that a tenant may have saved up when it comes back."""
        self._counters = np.zeros(16)
        self._per_input = np.zeros(16)
        self._per_output = np.zeros(16)
        self._num_accounts = 0
        self._free: list[int] = []

    def open(self, weight: float) -> int:
        """A new account's index. Its counter starts at 0, to be lifted."""
        if self._free:
            index = self._free.pop()
        else:
            index, self._num_accounts = self._num_accounts, self._num_accounts + 1
            if index == len(self._counters):
                self._counters, self._per_input, self._per_output = (
                    np.concatenate((column, np.zeros_like(column)))
                    for column in (self._counters, self._per_input, self._per_output)
                )
        self._counters[index] = 0.0
        self.set_weight(index, weight)
        return index

    def close(self, index: int) -> None:
        """Gives an account's index back."""
        self._free.append(index)

    def set_weight(self, index: int, weight: float) -> None:
        """What a token costs the account from now on."""
        self._per_input[index] = self.input_weight / weight
        self._per_output[index] = self.output_weight / weight

    def counter(self, index: int) -> float:
        """Virtual tokens that the account has had, lifts included."""
        return float(self._counters[index])

    def lift(self, index: int, least: float) -> None:
        """An account that comes back has saved nothing up: it starts no lower than those who waited meanwhile."""
        self._counters[index] = max(self._counters[index], least)

    def charge_input(self, index: int, num_tokens: int) -> None:
        """Prompt tokens of a request that starts, without those that are cached."""
        self._counters[index] += num_tokens * self._per_input[index]

    def value_of(self, num_prompt_tokens: int, num_output_tokens: int) -> float:
        """What computed prompt tokens and output tokens are worth, in virtual tokens at weight 1."""
        return num_prompt_tokens * self.input_weight + num_output_tokens * self.output_weight

    def charge(self, index: int, value: float) -> None:
        """Anything else, in virtual tokens at weight 1."""
        self._counters[index] += value * self._per_input[index] / self.input_weight

    def charge_outputs(self, counts: NDArray[np.int64]) -> None:
        """Output tokens, `[accounts]` by index."""
        size = len(counts)
        self._counters[:size] += counts * self._per_output[:size]


def outputs_by_account(worker: Worker, record: StepRecord, report: StepReport) -> NDArray[np.int64]:
    """Output tokens of one step, `[accounts]` by index. The rows of most steps are those
    of the step before, so their sum is kept."""
    table = worker.table
    if report.decode_counts is not None:
        weights = report.decode_counts.astype(np.float64)
        counts = np.bincount(table.account[record.decode_slots], weights).astype(np.int64)
    else:
        counts = _rows_by_account(worker, record.decode_slots)
    finals = [chunk.slot for chunk in record.chunks if chunk.is_final]
    if finals:
        counts = _add(counts, table.account[finals], np.ones(len(finals), np.int64))
    if len(report.exception_slots):
        counts = _add(counts, table.account[report.exception_slots], report.exception_counts - 1)
    return counts


def _rows_by_account(worker: Worker, slots: Slots) -> NDArray[np.int64]:
    known = worker.rows_by_account
    if known is None or known[0] is not slots:
        known = worker.rows_by_account = (slots, np.bincount(worker.table.account[slots]))
    return known[1]


def _add(
    counts: NDArray[np.int64], accounts: NDArray[np.int64], more: NDArray[np.int64]
) -> NDArray[np.int64]:
    total = np.zeros(max(len(counts), int(accounts.max()) + 1), np.int64)
    total[: len(counts)] = counts
    np.add.at(total, accounts, more)
    return total
