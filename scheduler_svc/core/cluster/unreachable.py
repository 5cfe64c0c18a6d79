"""Frontends that reach no worker of a model: what they ask for could not be answered, wherever it ran."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler_svc.core.state.worker import Worker


class Unreachable:
    """Since when which frontend has reached no worker of which model."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], float] = {}

    def look(self, workers: Iterable[Worker], now: float) -> None:
        """Workers have come or gone, or frontends have said something of them."""
        unheard: dict[str, frozenset[str]] = {}
        for worker in workers:
            model, by = worker.info.model, worker.vitals.unheard_by
            unheard[model] = by & unheard.get(model, by)
        cut_off = {(frontend, model) for model, by in unheard.items() for frontend in by}
        self._since = {pair: self._since.get(pair, now) for pair in cut_off}

    def lasts(self, now: float, grace_s: float) -> set[tuple[str, str]]:
        """Pairs of frontend and model for which that has lasted for longer."""
        return {pair for pair, since in self._since.items() if now - since >= grace_s}
