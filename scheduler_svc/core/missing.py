"""Requests that a frontend waits for and that nobody here knows."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler_svc.core.request import Request, RequestKey


class Missing:
    """They are lost once every worker that could have them has spoken: one may still say hello with them."""

    def __init__(self) -> None:
        self._attempts: list[tuple[RequestKey, int]] = []

    def __len__(self) -> int:
        return len(self._attempts)

    def add(self, key: RequestKey, attempt: int) -> None:
        """A frontend waits for this attempt, or a newer one."""
        self._attempts.append((key, attempt))

    def take_lost(
        self, requests: Mapping[RequestKey, Request], have_all_spoken: bool
    ) -> list[tuple[RequestKey, int]]:
        """Forgets those that are among `requests` by now; when all workers have spoken, the others too, which are
        lost."""
        self._attempts = [
            (key, attempt)
            for key, attempt in self._attempts
            if key not in requests or requests[key].attempt < attempt
        ]
        if not have_all_spoken:
            return []
        lost, self._attempts = self._attempts, []
        return lost
