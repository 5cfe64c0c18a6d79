"""The sessions of one client call: one per choice, opened, read and cancelled together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from frontend_svc.requests.events import Delta
from frontend_svc.requests.processor import RequestProcessor
from frontend_svc.requests.request import ClientRequest
from frontend_svc.requests.sessions.session import Session
from signalbox.errors import DeadlineExceededError, SignalboxError


class Choices:
    """Sessions in the order of their choices; those of the first prompt come first, `num_per_prompt` of each."""

    def __init__(self, sessions: Sequence[Session], num_per_prompt: int) -> None:
        self.sessions = sessions
        self.num_per_prompt = num_per_prompt
        self._open: dict[int, Session] = dict(enumerate(sessions))
        """Sessions whose terminal event was not read yet, by index."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of all prompts, each counted once."""
        return sum(session.request.num_prompt_tokens for session in self.sessions[:: self.num_per_prompt])

    @property
    def num_cached_tokens(self) -> int:
        """What the prefix cache saved of the first choice of each prompt."""
        return sum(session.num_cached_tokens for session in self.sessions[:: self.num_per_prompt])

    @property
    def all_ended(self) -> bool:
        """Every terminal event was read."""
        return not self._open

    async def wait_accepted(self) -> None:
        """Returns when the first choice is placed. Raises the error with which it was refused, and cancels all."""
        try:
            await self.sessions[0].wait_accepted()
        except SignalboxError:
            self.cancel()
            raise

    async def next_deltas(self) -> list[tuple[int, Delta]]:
        """All that the choices have, by index, as soon as one has something; nothing when all have ended."""
        ready = self._take()
        while not ready and self._open:
            await self._wait()
            ready = self._take()
        return ready

    async def collect(self) -> list[Delta]:
        """The whole output of each choice. Raises the first error that ends one, and cancels the others."""
        for session in self.sessions:
            session.want_whole()
        whole: dict[int, Delta] = {}
        while news := await self.next_deltas():
            for index, delta in news:
                assert delta.finished is not None
                if delta.finished.error is not None:
                    self.cancel()
                    raise delta.finished.error
                whole[index] = delta
        return [whole[index] for index in range(len(self.sessions))]

    def cancel(self, error: SignalboxError | None = None) -> None:
        """Ends what still runs; a no-op when all have ended."""
        if self._timer is not None:
            self._timer.cancel()
        for session in self._open.values():
            session.cancel(error)

    def abandon(self) -> None:
        """Cancels what still runs and reads no more of it."""
        self.cancel()
        self._open.clear()

    def limit_time(self, timeout_s: float) -> None:
        """Ends what still runs after so many seconds with DeadlineExceededError."""
        error = DeadlineExceededError(f"the request took longer than the {timeout_s:g} s that it was given")
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self.cancel, error)

    def _take(self) -> list[tuple[int, Delta]]:
        ready = [(index, session.take_delta()) for index, session in self._open.items() if session.has_news]
        for index, delta in ready:
            if delta.finished is not None:
                del self._open[index]
        if self._timer is not None and not self._open:
            self._timer.cancel()
        return ready

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for session in self._open.values():
            session.arm(waiter)
        try:
            await waiter
        finally:
            for session in self._open.values():
                session.arm(None)


async def open_choices(
    processor: RequestProcessor,
    prompts: Sequence[ClientRequest],
    num_per_prompt: int,
    timeout_s: float | None = None,
) -> Choices:
    """Opens all sessions of a call, or none. Raises the SignalboxError for which it is refused."""
    sessions: list[Session] = []
    lease = await processor.access.admit(len(prompts) * num_per_prompt)
    try:
        for index, request in enumerate(prompts):
            if index:
                await asyncio.sleep(0)  # many prompts take their time to tokenize
            sessions += await processor.open_choices(request, num_per_prompt, lease)
    except BaseException:
        for session in sessions:
            session.cancel()
        raise
    finally:
        if lease is not None:
            lease.close()
    choices = Choices(sessions, num_per_prompt)
    if timeout_s is not None:
        choices.limit_time(timeout_s)
    return choices
