"""The requests of a call that has many, a window of them at a time, so that others have their turn between them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from frontend_svc.requests.choices import Choices, open_choices
from frontend_svc.requests.events import Delta
from frontend_svc.requests.processor import RequestProcessor
from frontend_svc.requests.request import ClientRequest
from signalbox.errors import CancelledError, DeadlineExceededError, SignalboxError

WINDOW = 64
"""Most requests of one call that are open at a time."""
MATRIX_WINDOW = 8
"""Most that are open where a result has a row for each token."""


class Fanout:
    """Opens the requests in two halves of the window: one is opened while the other runs."""

    def __init__(
        self,
        processor: RequestProcessor,
        requests: Sequence[ClientRequest],
        window: int = WINDOW,
        timeout_s: float | None = None,
    ) -> None:
        """`timeout_s` is for all of them together; None: as long as it takes."""
        self.num_prompt_tokens = 0
        """Tokens of the prompts that were opened."""
        self.lengths: list[int] = []
        """Tokens of each of them."""
        self._processor = processor
        self._requests = requests
        self._half = max(window // 2, 1)
        self._ends_at = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        self._timeout_s = timeout_s
        self._open: deque[Choices] = deque()
        self._error: SignalboxError | None = None

    async def collect(self) -> list[Delta]:
        """The results, in order. Raises the first error, and cancels the others."""
        results: list[Delta] = []
        try:
            for start in range(0, len(self._requests), self._half):
                if len(self._open) == 2:
                    results += await self._open[0].collect()
                    self._open.popleft()
                await self._open_more(self._requests[start : start + self._half])
            while self._open:
                results += await self._open[0].collect()
                self._open.popleft()
        except BaseException:
            self.cancel()
            raise
        return results

    def cancel(self, error: SignalboxError | None = None) -> None:
        """Ends what runs, and opens no more; a no-op when all have ended."""
        self._error = error or CancelledError("the client left")
        for choices in self._open:
            choices.cancel(error)

    async def _open_more(self, requests: Sequence[ClientRequest]) -> None:
        if self._error is not None:
            raise self._error
        choices = await open_choices(self._processor, requests, 1, self._time_left_s())
        self.num_prompt_tokens += choices.num_prompt_tokens
        self.lengths += [session.request.num_prompt_tokens for session in choices.sessions]
        self._open.append(choices)
        if self._error is not None:  # meanwhile
            raise self._error

    def _time_left_s(self) -> float | None:
        if self._ends_at is None:
            return None
        left_s = self._ends_at - asyncio.get_running_loop().time()
        if left_s <= 0:
            raise DeadlineExceededError(
                f"the request took longer than the {self._timeout_s:g} s that it was given"
            )
        return left_s
