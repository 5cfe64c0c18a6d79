"""What a client has not read yet. Outputs of several steps join up, so one wake-up delivers all there is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from frontend_svc.requests.events import Delta, Finished, TokenLogprobs
from frontend_svc.text.certain import Certain
from frontend_svc.text.parsing.events import Event, join_events


class DeltaQueue:
    """One producer, the session, and one consumer, the client's handler; both on the event loop."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._events: list[Event] = []
        self._num_reasoning_tokens = 0
        self._reasoning_places: list[int] = []
        self._token_ids: list[int] = []
        self._logprobs: list[TokenLogprobs] = []
        self._finished: Finished | None = None
        self._prompt_logprobs: Sequence[TokenLogprobs] = ()
        self._vector = b""
        self._accepted = False
        self._wants_whole = False
        self._waiter: asyncio.Future[None] | None = None

    @property
    def backlog(self) -> int:
        """Output tokens that the client could have read and has not."""
        return 0 if self._wants_whole else len(self._token_ids)

    @property
    def is_ready(self) -> bool:
        """There is something to take."""
        if self._wants_whole:
            return self._finished is not None
        return bool(self._token_ids or self._text or self._events or self._prompt_logprobs or self._finished)

    def want_whole(self) -> None:
        """The client reads nothing before the end: no wake-up until then, and it is never slow."""
        self._wants_whole = True

    def accept(self) -> None:
        """The request will not be refused any more."""
        if not self._accepted:
            self._accepted = True
            self._wake()

    def put(self, certain: Certain, token_ids: Iterable[int], logprobs: Iterable[TokenLogprobs]) -> None:
        """Adds output; no tokens and no text is legal."""
        self._accepted = True
        if certain.text:
            self._text.append(certain.text)
        if certain.events:
            self._events += certain.events
        self._num_reasoning_tokens += certain.num_reasoning_tokens
        if certain.reasoning_places:
            start = len(self._token_ids)
            self._reasoning_places += [start + place for place in certain.reasoning_places]
        self._token_ids.extend(token_ids)
        self._logprobs.extend(logprobs)
        if not self._wants_whole:
            self._wake()

    def put_prompt_logprobs(self, logprobs: Sequence[TokenLogprobs]) -> None:
        """Adds those of the whole prompt, once and ahead of any output."""
        self._accepted = True
        self._prompt_logprobs = logprobs
        self._wake()

    def put_vector(self, values: bytes) -> None:
        """Adds the result of a pooling request; it is read with the terminal event."""
        self._vector = values

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

    def arm(self, waiter: asyncio.Future[None] | None) -> None:
        """Has `waiter` done at the next news, for a consumer that waits for several queues; None: not any more."""
        assert waiter is None or self._waiter is None, "a second consumer"
        self._waiter = waiter

    async def get(self) -> Delta:
        """Everything that is there, as soon as there is something."""
        while not self.is_ready:
            await self._wait()
        return self.take()

    def take(self) -> Delta:
        """Everything that is there, even if that is nothing."""
        delta = Delta(
            "".join(self._text),
            self._token_ids,
            self._logprobs,
            self._finished,
            self._prompt_logprobs,
            self._vector,
            join_events(self._events) if self._events else (),
            self._num_reasoning_tokens,
            self._reasoning_places,
        )
        self._events, self._num_reasoning_tokens, self._reasoning_places = [], 0, []
        self._text, self._token_ids, self._logprobs, self._prompt_logprobs = [], [], [], ()
        return delta

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self.arm(waiter)
        try:
            await waiter
        finally:
            self.arm(None)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
