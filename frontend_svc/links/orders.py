"""What clients want of their requests, for workers while there is no scheduler (docs/liveness.md, A6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum

from frontend_svc.clock import Clock
from frontend_svc.requests.sessions.session import Session


class Action(IntEnum):
    """What a client wants of an attempt; numbers as in worker.proto."""

    CANCEL = 1
    FINISH = 2
    PAUSE = 3
    UNPAUSE = 4


@dataclass(frozen=True, slots=True)
class Order:
    """One thing that a client wants of an attempt."""

    attempt: int
    action: Action


Tell = Callable[[str, Order], None]
"""Says an order to a worker; an empty id is any that may have the attempt."""


@dataclass(frozen=True, slots=True)
class _Said:
    at_s: float
    worker_id: str
    order: Order


class Orders:
    """Remembers what must reach the worker when the scheduler may not pass it on.

    That begins before the link ends: what was said to a scheduler within `recent_s` before, it may not have taken.
    """

    def __init__(self, clock: Clock, recent_s: float) -> None:
        self.is_needed = False
        """Whether there is no scheduler, so that workers are told themselves."""
        self._clock = clock
        self._recent_s = recent_s
        self._tell: Tell = lambda worker_id, order: None
        self._ends: deque[_Said] = deque()
        """Cancels and finishes, oldest first: their sessions have gone."""

    def connect(self, tell: Tell) -> None:
        """`tell` hears of every order while there is no scheduler."""
        self._tell = tell

    def begin(self) -> None:
        """From now on workers are told: the scheduler has gone."""
        self._forget_old()
        self.is_needed = True

    def end(self) -> None:
        """A scheduler is there. It may go again before it has passed on what it was told."""
        self.is_needed = False
        now = self._clock()
        self._ends = deque(_Said(now, said.worker_id, said.order) for said in self._ends)

    def say(self, session: Session, action: Action) -> None:
        """Tells what a client wants of the session's current attempt."""
        order = Order(session.attempt, action)
        if action in (Action.CANCEL, Action.FINISH):
            if not self.is_needed:
                self._forget_old()
            self._ends.append(_Said(self._clock(), session.legs.only_worker_id, order))
        if self.is_needed:
            self._tell(session.legs.only_worker_id, order)

    def whole(self, worker_id: str, sessions: Iterable[Session]) -> list[Order]:
        """All that the worker has to know; `sessions` may be there. Whoever was ever paused is named, as the worker may
        know an older word."""
        orders = [said.order for said in self._ends if said.worker_id in ("", worker_id)]
        for session in sessions:
            if session.was_paused:
                action = Action.UNPAUSE if session.paused_s is None else Action.PAUSE
                orders.append(Order(session.attempt, action))
        return orders

    def _forget_old(self) -> None:
        limit = self._clock() - self._recent_s
        while self._ends and self._ends[0].at_s < limit:
            self._ends.popleft()
