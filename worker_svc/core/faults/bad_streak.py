"""When rows without finite numbers are the device's fault, and no request's (N3)."""

from __future__ import annotations

from worker_svc.core.faults.unfit import UnfitError
from worker_svc.core.step import RequestRef


class BadStreak:
    """The requests with a bad row since the last good row of any."""

    def __init__(self, limit: int) -> None:
        """limit: so many different ones are too many."""
        self._limit = limit
        self._requests: set[tuple[str, str]] = set()

    def take(self, bad: list[RequestRef], has_good_row: bool) -> None:
        """What a step with rows came to."""
        if has_good_row:
            self._requests.clear()
        else:
            self._requests.update((ref.frontend_instance, ref.request_id) for ref in bad)

    def check(self) -> None:
        """Raises UnfitError if it is too long."""
        if len(self._requests) >= self._limit:
            raise UnfitError(
                f"{len(self._requests)} requests in a row had hidden states that are not finite, and none had good ones"
            )
