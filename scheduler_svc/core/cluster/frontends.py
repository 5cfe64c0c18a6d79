"""The frontends: which requests each of them waits for, by its own word, and how long one that is gone may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from scheduler_svc.core.state.requests.evidence import Process
from scheduler_svc.core.state.requests.request import RequestKey

Named = tuple[str, int]
"""A request as its frontend names it: id and attempt."""
END_KNOWN_S = 0.5
"""After so long a silence more, the end of a link would have come."""


class End(NamedTuple):
    """Where an attempt has ended."""

    by: Process
    """The worker that has ended it, and says so to the frontend."""
    leg: int
    """Under which it says so (HO10)."""


@dataclass
class Frontend:
    """A frontend process that has or had a link."""

    attached: bool = False
    has_attached: bool = False
    """Whether the frontend is attached, or was before."""
    detached_at: float = 0.0
    heard_at: float | None = None
    """When the frontend last said something, in seconds; None: nobody listens, so its silence means nothing."""
    is_silent: bool = False
    """The frontend has a link, and was not heard on it for as long as counts as silence."""
    acknowledges: bool = False
    """The frontend says what it has heard of who may run its requests (HO20)."""
    num_told: int = 0
    """Number of the last message about who may run its requests (HO20) that was sent to it."""
    live: dict[str, int] = field(default_factory=dict)
    """What it waits for, by its last hello and what it has said since: the newest attempt of each request id."""
    paused: set[Named] = field(default_factory=set)
    """Attempts whose clients read too slowly."""
    ended: dict[Named, End | None] = field(default_factory=dict)
    """Attempts that have ended here while it was away, and may still be named: another worker may tell of them, too,
    as the one that had handed them over. None: no worker has ended it."""


class Frontends:
    """All that have or had a link, until their grace time has passed. What they say is kept for requests that nobody
    here knows, too: a worker may still say hello with them."""

    def __init__(self, grace_s: float) -> None:
        self.by_instance: dict[str, Frontend] = {}
        self._grace_s = grace_s

    def attach(
        self, instance: str, live: list[Named], paused: list[Named], *, acknowledges: bool = False
    ) -> None:
        """A frontend said hello, with all that it still waits for, and those whose clients read too slowly."""
        frontend = self.by_instance.setdefault(instance, Frontend())
        frontend.attached = frontend.has_attached = True
        frontend.is_silent, frontend.acknowledges = False, acknowledges
        frontend.live = {}
        for request_id, attempt in live:
            frontend.live[request_id] = max(attempt, frontend.live.get(request_id, 0))
        frontend.paused = {named for named in paused if frontend.live.get(named[0]) == named[1]}
        frontend.ended = {
            named: end for named, end in frontend.ended.items() if frontend.live.get(named[0]) == named[1]
        }

    def detach(self, instance: str, now: float) -> None:
        """Notes that a frontend's link ended."""
        frontend = self.by_instance.get(instance)
        if frontend is not None:
            frontend.attached, frontend.detached_at, frontend.is_silent = False, now, False

    def heard(self, instance: str, now: float) -> None:
        """A frontend has said something."""
        frontend = self.by_instance.get(instance)
        if frontend is not None:
            frontend.heard_at, frontend.is_silent = now, False

    def judge(self, now: float, silence_s: float) -> list[str]:
        """Finds out which frontends are silent (H2), and names those that were not before."""
        fallen_silent = []
        for instance, frontend in self.by_instance.items():
            if frontend.attached and not frontend.is_silent and not self.is_present(instance, now, silence_s):
                frontend.is_silent = True
                fallen_silent.append(instance)
        return fallen_silent

    def hears_us(self, instance: str) -> bool:
        """The frontend hears this scheduler, for all that is known."""
        frontend = self.by_instance.get(instance)
        return frontend is None or (frontend.attached and not frontend.is_silent)

    def hears_nothing_of(self, instance: str, now: float, silence_s: float) -> bool:
        """A frontend that was found silent has been so for `END_KNOWN_S` more than that takes: one direction of its
        link is dead, or it stands still (H4)."""
        frontend = self.by_instance.get(instance)
        is_silent = frontend is not None and frontend.is_silent
        return is_silent and not self.is_present(instance, now, silence_s + END_KNOWN_S)

    def number_word(self, instance: str) -> int:
        """The number of the next word that a frontend is to acknowledge; 0: it acknowledges none."""
        frontend = self.by_instance.get(instance)
        if frontend is None or not frontend.acknowledges:
            return 0
        frontend.num_told += 1
        return frontend.num_told

    def is_present(self, instance: str, now: float, silence_s: float) -> bool:
        """The frontend has a link, and was heard on it within `silence_s`."""
        frontend = self.by_instance.get(instance)
        if frontend is None or not frontend.attached:
            return False
        return frontend.heard_at is None or now - frontend.heard_at < silence_s

    def take_gone(self, now: float) -> list[str]:
        """Forgets the frontends whose grace time has passed, and names them."""
        gone = [
            instance
            for instance, frontend in self.by_instance.items()
            if not frontend.attached and now - frontend.detached_at >= self._grace_s
        ]
        for instance in gone:
            del self.by_instance[instance]
        return gone

    def expect(self, instance: str, now: float) -> None:
        """A worker has something for this frontend: its grace time begins, unless it is known."""
        self.by_instance.setdefault(instance, Frontend(detached_at=now))

    def has_met(self, instance: str) -> bool:
        """The frontend had a link to this scheduler before, or has one."""
        frontend = self.by_instance.get(instance)
        return frontend is not None and frontend.has_attached

    # -- what they wait for --

    def submitted(self, key: RequestKey, attempt: int) -> None:
        """The frontend waits for this attempt from now on, and for no older one."""
        frontend = self.by_instance.get(key.frontend_instance)
        if frontend is not None:
            older = frontend.live.get(key.request_id)
            frontend.live[key.request_id] = attempt
            if older is not None:
                frontend.paused.discard((key.request_id, older))

    def may_want(self, key: RequestKey, attempt: int) -> bool:
        """The frontend waits for the request, for all that is known. One that is away may have submitted a newer
        attempt elsewhere, and never an older one."""
        frontend = self.by_instance.get(key.frontend_instance)
        if frontend is None:
            return True
        if (key.request_id, attempt) in frontend.ended:
            return False
        newest = frontend.live.get(key.request_id)
        return newest == attempt if frontend.attached else newest is None or newest <= attempt

    def is_paused(self, key: RequestKey, attempt: int) -> bool:
        """The request's client reads too slowly, by the frontend's word."""
        frontend = self.by_instance.get(key.frontend_instance)
        return frontend is not None and (key.request_id, attempt) in frontend.paused

    def set_paused(self, key: RequestKey, attempt: int, paused: bool) -> None:
        """A client reads too slowly, or goes on."""
        frontend = self.by_instance.get(key.frontend_instance)
        if frontend is not None:
            named = (key.request_id, attempt)
            # It may have ended when its frontend said so: nobody would ever take it out again.
            is_live = frontend.live.get(key.request_id) == attempt
            (frontend.paused.add if paused and is_live else frontend.paused.discard)(named)

    def withdraw(self, key: RequestKey, attempt: int, end: End | None = None) -> None:
        """The frontend does not wait for the request any more; `end`: a worker has ended it. One that is away may say
        once more that it waits."""
        frontend = self.by_instance.get(key.frontend_instance)
        if frontend is not None:
            if not frontend.attached:
                frontend.ended[key.request_id, attempt] = end
            if frontend.live.get(key.request_id) == attempt:
                del frontend.live[key.request_id]
            frontend.paused.discard((key.request_id, attempt))
