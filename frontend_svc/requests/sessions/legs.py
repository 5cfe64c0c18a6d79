"""Who may run a request's current attempt, leg by leg, and what was said of it ahead of the scheduler's word (HO10)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from signalbox.protocol.model_identity import ModelIdentity

MAX_NAMED = 32
"""Legs ahead of the one that speaks whose workers are known; of more, the oldest are forgotten."""
MAX_WAITING = 1024
"""Things said and tokens in them, together, that wait for the scheduler's word, for each attempt."""


class Hearing(Enum):
    """What becomes of something that a worker says of an attempt."""

    TAKEN = auto()
    """It counts."""
    WAITS = auto()
    """It may count: the scheduler has not said yet who has this leg."""
    LEFT_OUT = auto()
    """It is another's to say (R11). Told once for each worker and leg, and IGNORED from then on."""
    IGNORED = auto()
    """It does not count: a higher leg has spoken, or more of the same was left out before."""


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that a worker said of a leg: tokens, log-probabilities of the prompt, an end."""

    leg: int
    worker_id: str
    identity: ModelIdentity
    num_tokens: int
    take: Callable[[], None]
    """Has the session take it."""


class Legs:
    """The legs of one attempt; another one begins anew."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Another attempt: nobody is known to have it."""
        self.current = 0
        """The highest leg that spoke; 0: none above it has."""
        self._workers: dict[int, str] = {}
        """Workers by leg, from the current one on."""
        self._waiting: list[Said] = []
        self._size = 0
        self._left_out: dict[str, int] = {}
        """By worker: the highest leg of which something that it said was left out."""

    @property
    def worker_id(self) -> str:
        """Who has the current leg; where that is not known, the next that is. Empty: nobody is known to have any."""
        worker_id = self._workers.get(self.current)
        if worker_id is None and self._workers:
            worker_id = self._workers[min(self._workers)]
        return worker_id or ""

    @property
    def only_worker_id(self) -> str:
        """Who has the attempt, if it can be nowhere else; else empty."""
        return self.worker_id if self.is_known and len(self.workers) == 1 else ""

    @property
    def is_known(self) -> bool:
        """Somebody is known to have the current leg."""
        return self.current in self._workers

    @property
    def workers(self) -> set[str]:
        """Workers that may have the attempt, as far as they are known."""
        return {*self._workers.values(), *(said.worker_id for said in self._waiting)}

    def worker_of(self, leg: int) -> str:
        """Who has this leg; empty: that is not known."""
        return self._workers.get(leg, "")

    def may_be_on(self, worker_id: str) -> bool:
        """This worker may have the attempt: it was named or heard, or nobody knows who has the current leg."""
        return not self.is_known or worker_id in self.workers

    # ---- the scheduler's word

    def name(self, leg: int, worker_id: str) -> None:
        """This worker may run the attempt from now on. The newest word for a leg counts."""
        if leg < self.current:
            return
        self._workers[leg] = worker_id
        if len(self._workers) > MAX_NAMED:
            del self._workers[min(self._workers.keys() - {self.current})]

    def lacks_some_of(self, leg: int, worker_id: str) -> bool:
        """Something that this worker said of the leg, or of a higher one, was left out: an end, perhaps."""
        return self.current <= leg <= self._left_out.get(worker_id, -1)

    def take_due(self) -> list[Said]:
        """All that waits no longer, in the order of legs, and of a leg in that in which it came."""
        highest = max(self._workers, default=-1)
        due = [said for said in self._waiting if said.leg <= highest]
        self._keep_waiting(lambda said: said.leg > highest)
        return sorted(due, key=lambda said: said.leg)

    # ---- workers' words

    def is_speaking(self, leg: int, worker_id: str) -> bool:
        """This is the current leg, and this worker has it."""
        return leg == self.current and self._workers.get(leg) == worker_id

    def hear(self, leg: int, worker_id: str) -> Hearing:
        """A worker says something of the attempt under this leg.

        A leg that was passed over (the scheduler has named a higher one, and never this one) is known nowhere: its word
        may have died with a scheduler, and R11 holds.
        """
        if self.is_speaking(leg, worker_id):
            return Hearing.TAKEN
        if leg < self.current or self.lacks_some_of(leg, worker_id):
            return Hearing.IGNORED
        known = self._workers.get(leg)
        if known is None and self._workers and leg > max(self._workers):
            return Hearing.WAITS
        if known is not None and known != worker_id:
            self._left_out[worker_id] = leg
            return Hearing.LEFT_OUT
        self._workers[leg] = worker_id
        if leg > self.current:
            self._advance(leg)
        return Hearing.TAKEN

    def keep(self, said: Said) -> bool:
        """Keeps something of a leg ahead of the scheduler's word. False: it would be too much, and all that this worker
        has said of such legs is left out."""
        if self._size + 1 + said.num_tokens <= MAX_WAITING:
            self._waiting.append(said)
            self._size += 1 + said.num_tokens
            return True
        mine = [each.leg for each in self._waiting if each.worker_id == said.worker_id]
        self._left_out[said.worker_id] = max(said.leg, *mine, self._left_out.get(said.worker_id, -1))
        self._keep_waiting(lambda each: each.worker_id != said.worker_id)
        return False

    def _advance(self, leg: int) -> None:
        """Lower legs say nothing more."""
        self.current = leg
        self._workers = {each: worker_id for each, worker_id in self._workers.items() if each >= leg}
        self._left_out = {worker_id: each for worker_id, each in self._left_out.items() if each >= leg}
        self._keep_waiting(lambda said: said.leg >= leg)

    def _keep_waiting(self, is_kept: Callable[[Said], bool]) -> None:
        self._waiting = [said for said in self._waiting if is_kept(said)]
        self._size = sum(1 + said.num_tokens for said in self._waiting)

    def check_integrity(self) -> None:
        """Asserts that only legs are known that may still speak, and that what waits is bounded."""
        assert len(self._workers) <= MAX_NAMED
        assert all(leg >= self.current for leg in self._workers)
        assert self._size == sum(1 + said.num_tokens for said in self._waiting) <= MAX_WAITING
        assert all(said.leg > max(self._workers, default=-1) for said in self._waiting)
