"""What a client has not read yet. Outputs of several steps join up, so one wake-up delivers all there is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from frontend_svc.events import Delta, Finished, TokenLogprobs


class DeltaQueue:
    """One producer, the session, and one consumer, the client's handler; both on the event loop."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self._finished: Finished | None = None
        self._accepted = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def backlog(self) -> int:
        """Output tokens that have not been read."""
        return len(self._token_ids)

    def accept(self) -> None:
        """The request will not be refused any more."""
        if not self._accepted:
            self._accepted = True
            self._wake()

    def put(self, text: str, token_ids: Iterable[int], logprobs: Iterable[TokenLogprobs]) -> None:
        """Adds output; no tokens and no text is legal."""
        self._accepted = True
        if text:
            self._text.append(text)
        self._token_ids.extend(token_ids)
        self._logprobs.extend(logprobs)
        self._wake()

    def finish(self, finished: Finished) -> None:
        """Adds the terminal event, behind everything else."""
        assert self._finished is None, "a second terminal event"
        self._finished = finished
        self._wake()

    async def wait_accepted(self) -> None:
        """Returns when the request is placed or has output. Raises the error with which it was refused."""
        while not self._accepted:
            if self._finished is not None and self._finished.error is not None:
                raise self._finished.error
            if self._finished is not None:
                return
            await self._wait()

    async def get(self) -> Delta:
        """Everything that is there, as soon as there is something."""
        while not self._token_ids and not self._text and self._finished is None:
            await self._wait()
        return self.take()

    def take(self) -> Delta:
        """Everything that is there, even if that is nothing."""
        delta = Delta("".join(self._text), self._token_ids, self._logprobs, self._finished)
        self._text, self._token_ids, self._logprobs = [], [], []
        return delta

    async def _wait(self) -> None:
        assert self._waiter is None, "a second consumer"
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
