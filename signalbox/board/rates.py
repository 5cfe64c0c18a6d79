"""Rates of the board, from the counters of its snapshots."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from signalbox.board.snapshot import Board, Worker

WINDOW_MS = 2000
"""Rates are over this time."""


@dataclass(frozen=True)
class _Point:
    at_ms: int
    output_tokens: int
    prefill_tokens: int
    step_us: int
    model_us: int


class Rates:
    """What snapshots that follow each other make; None as long as they do not say."""

    def __init__(self) -> None:
        self._points: deque[_Point] = deque()
        self._workers: dict[str, Worker] = {}
        self._epoch: int | None = None

    def add(self, board: Board) -> None:
        """The next snapshot. One of another scheduler begins anew."""
        if board.scheduler_epoch != self._epoch:
            self._points.clear()
            self._workers.clear()
            self._epoch = board.scheduler_epoch
        last = self._points[-1] if self._points else _Point(0, 0, 0, 0, 0)
        pairs = [(worker, self._workers.get(worker.worker_id, worker)) for worker in board.workers]
        self._points.append(
            _Point(
                board.at_ms,
                # Counters begin anew when a worker attaches.
                last.output_tokens
                + sum(max(new.num_output_tokens - old.num_output_tokens, 0) for new, old in pairs),
                last.prefill_tokens
                + sum(max(new.num_prefill_tokens - old.num_prefill_tokens, 0) for new, old in pairs),
                last.step_us + sum(worker.step_us for worker in board.workers),
                last.model_us + sum(worker.model_us for worker in board.workers),
            )
        )
        self._workers = {worker.worker_id: worker for worker in board.workers}
        while len(self._points) > 2 and board.at_ms - self._points[1].at_ms >= WINDOW_MS:
            self._points.popleft()

    @property
    def output_tokens_s(self) -> float | None:
        """How many output tokens came per second."""
        return self._per_second("output_tokens")

    @property
    def prefill_tokens_s(self) -> float | None:
        """Prompt tokens computed per second."""
        return self._per_second("prefill_tokens")

    @property
    def model_share(self) -> float | None:
        """Share of the steps' time that the model had."""
        if len(self._points) < 2:
            return None
        step_us = self._points[-1].step_us - self._points[0].step_us
        return (self._points[-1].model_us - self._points[0].model_us) / step_us if step_us else None

    def _per_second(self, name: str) -> float | None:
        if len(self._points) < 2:
            return None
        first, last = self._points[0], self._points[-1]
        count: int = getattr(last, name) - getattr(first, name)
        return count / max(last.at_ms - first.at_ms, 1) * 1e3
