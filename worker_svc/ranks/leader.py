"""Rank 0's side of a group: it says what all do, does it too, and hears that they have (RK2 to RK5)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from signalbox.runtime.parts import start_thread
from signalbox.v1 import ranks_pb2
from worker_svc.core.batch import RankTimes
from worker_svc.ranks.errors import GroupBrokenError, StageFailedError
from worker_svc.ranks.peer import Peer
from worker_svc.runner.split.communicator import Communicator

logger = logging.getLogger(__name__)
T = TypeVar("T")
LOOK_S = 0.1
SILENT_S = 1.5
"""A rank whose own thread for it has not said for so long that it is there is stopped, or its host is."""
PAUSE_S = 0.5
"""Between two looks: more means that this process did not run."""
SILENT_LOADING_S = 60.0
"""As long it may be silent while it starts and loads: importing what it needs lets no thread of it speak."""
LATE_S, LATE_FACTOR = 10.0, 20.0
"""A rank that has not made a call so long after rank 0 made its part, and so many times the time that this took, hangs:
all wait for each other on the way, so that they end together."""
HUNG_S, HUNG_FACTOR = 30.0, 20.0
"""A call within which ranks have not added up for so long, and so many times as long as ever before, hangs."""
HUNG_STAGE_S = 300.0
"""`HUNG_S` of a pipeline, whose stages say nothing while they compute."""
STUCK_S = 1.0
"""So long rank 0 may go on with a call that another rank has failed in: then it waits for that one."""


@dataclass(eq=False)
class Begun:
    """A call that rank 0 has made its part of."""

    leader: Leader
    number: int
    own: tuple[int, bool, int]
    """Collectives so far, whether our part succeeded, digest of what came of it."""
    failure: Exception | None
    took: float

    @property
    def is_over(self) -> bool:
        """All others have made theirs."""
        return self.leader.is_over(self.number)


class Leader:
    """The group, as the runner of rank 0 uses it. Calls are made by one thread at a time."""

    def __init__(
        self,
        peers: Sequence[Peer],
        ranks: Communicator,
        heard: threading.Condition,
        everyone: Communicator | None = None,
    ) -> None:
        """ranks: those of rank 0's own stage. heard: the peers' own. everyone: all ranks, if there are several
        stages."""
        self._peers, self._ranks, self._heard, self._everyone = peers, ranks, heard, everyone
        self._on_their_way: list[Begun] = []
        self._lock = threading.Lock()
        self._number = 0
        self._running_since: float | None = None
        self._progress, self._progress_s, self._longest_quiet = (0, 0), time.monotonic(), 0.0
        self.failure: GroupBrokenError | None = None
        """Why the group has ended. Any thread may look."""
        self._is_closed = False
        self._looked_s = self._awake_s = time.monotonic()
        self.times = [RankTimes() for _ in range(1 + len(peers))]
        """Where time went, by rank."""
        self._watcher = start_thread("ranks", self._watch, self._unwatched)

    @property
    def pids(self) -> list[int]:
        """Processes of the other ranks, in order."""
        return [peer.pid for peer in self._peers]

    @property
    def bytes_sent(self) -> int:
        """To all other ranks."""
        return sum(peer.bytes_sent for peer in self._peers)

    def wait_until_loaded(self, likeness: str) -> None:
        """GroupBrokenError says which rank cannot load its part, and why; or which has something else than the
        `likeness` of rank 0."""
        with self._heard:
            self._heard.wait_for(lambda: self.failure or all(peer.is_loaded for peer in self._peers))
        self._raise_failure()
        for peer in self._peers:
            theirs = peer.done.likeness if peer.done is not None else ""
            if theirs != likeness:
                self._break(f"rank {peer.rank} is not like rank 0: it has {theirs!r} for {likeness!r}")

    def run(self, call: ranks_pb2.RankCall, act: Callable[[], T], digest: Callable[[], int] = lambda: 0) -> T:
        """Has all ranks make a call, of which `act` is our own part; `digest` says what came of it, as they do.

        What all ranks fail in alike, outside of a collective, is raised as it is here; GroupBrokenError for all else.
        """
        return self.run_apart([call] * len(self._peers), act, digest)

    def run_apart(
        self, calls: Sequence[ranks_pb2.RankCall], act: Callable[[], T], digest: Callable[[], int] = lambda: 0
    ) -> T:
        """Like `run` of a call that is another one for each of the other ranks, in order."""
        with self._lock:
            begun, result = self._begin(calls, act, digest)
            self._finish(begun)
            return result  # type: ignore[return-value]

    def gather(self, call: ranks_pb2.RankCall, act: Callable[[], bytes]) -> list[bytes]:
        """Like `run` of a call that each rank has something to say to: what they said, by rank."""
        with self._lock:
            begun, own = self._begin([call] * len(self._peers), act)
            return [own or b"", *self._finish(begun)]

    def begin(self, call: ranks_pb2.RankCall, act: Callable[[], object], digest: Callable[[], int]) -> Begun:
        """Like `run` of a call that is on its way when this returns: whatever it fails in shows in `finish`."""
        with self._lock:
            return self._begin([call] * len(self._peers), act, digest)[0]

    def finish(self, begun: Begun) -> list[bytes]:
        """Waits until all others have made a call that was begun. What they said to it, by rank from 1 on."""
        with self._lock:
            return self._finish(begun)

    def is_over(self, number: int) -> bool:
        """All others have said that they have made a call. Raises GroupBrokenError."""
        self._raise_failure()
        return all(number in peer.all_done for peer in self._peers)

    def _begin(
        self,
        calls: Sequence[ranks_pb2.RankCall],
        act: Callable[[], T],
        digest: Callable[[], int] = lambda: 0,
    ) -> tuple[Begun, T | None]:
        self._raise_failure()
        self._number += 1
        try:
            for peer, call in zip(self._peers, calls, strict=True):
                call.number = self._number
                peer.send(ranks_pb2.RankMessage(call=call))
        except OSError:
            self._break(f"rank {peer.rank} is gone")
        self._running_since = started = time.monotonic()
        result: T | None = None
        failure: Exception | None = None
        before = self._ranks.seconds
        try:
            result = act()
        except Exception as error:
            failure = error
        took = time.monotonic() - started
        _add(self.times[0], took, self._ranks.seconds - before)
        own = (self._ranks.num_calls, failure is None, digest() if failure is None else 0)
        begun = Begun(self, self._number, own, failure, took)
        self._on_their_way.append(begun)
        return begun, result

    def _finish(self, begun: Begun) -> list[bytes]:
        try:
            self._compare(begun)
        finally:
            self._on_their_way.remove(begun)
            if not self._on_their_way:
                self._running_since = None
        said = [peer.all_done.pop(begun.number) for peer in self._peers]
        if begun.failure is not None:
            raise begun.failure
        failures = [done.failure for done in said if done.failure]
        if failures:
            raise StageFailedError(failures[0])
        return [done.content for done in said]

    def close(self) -> None:
        """Ends the other ranks."""
        self._is_closed = True
        for peer in self._peers:
            peer.kill()
        for peer in self._peers:
            peer.wait()

    def _compare(self, begun: Begun) -> None:
        """Hears how the others have fared. GroupBrokenError unless all of a stage have fared alike."""
        number, failure = begun.number, begun.failure
        patience: float | None = STUCK_S if failure is not None else LATE_S + LATE_FACTOR * begun.took
        if self._everyone is not None:
            patience = None  # another stage may have far more to do
        waited = time.monotonic()
        with self._heard:
            are_done = self._heard.wait_for(
                lambda: self.failure or all(number in peer.all_done for peer in self._peers), patience
            )
        self.times[0].answers += time.monotonic() - waited
        self._raise_failure(failure)
        if not are_done:
            late = next(peer.rank for peer in self._peers if number not in peer.all_done)
            why = (
                f"after rank 0 failed ({failure!r})"
                if failure is not None
                else f"{patience:.0f} s after rank 0"
            )
            self._break(f"rank {late} has not made call {number}, {why}")
        firsts = {0: begun.own}
        for peer in self._peers:
            done = peer.all_done[number]
            _add(self.times[peer.rank], done.took_us / 1e6, done.collectives_us / 1e6)
            theirs = (done.num_collectives, not done.failure, done.digest)
            first = peer.rank - peer.rank % self._ranks.size
            expected = firsts.setdefault(first, theirs)
            if theirs != expected:
                why = " and ".join(filter(None, [done.failure, "" if failure is None else repr(failure)]))
                self._break(
                    f"rank {peer.rank} has done something else in call {number} than rank {first}:"
                    f" {theirs} for {expected} (collectives, success, digest){why and ': ' + why}"
                )

    def _raise_failure(self, cause: BaseException | None = None) -> None:
        if self.failure is not None:
            raise self.failure from cause

    def _break(self, reason: str) -> None:
        self._end(reason)
        self._raise_failure()

    def _end(self, reason: str) -> None:
        """Ends all other ranks, so that nobody waits for them within a collective."""
        with self._heard:
            if self.failure is None:
                self.failure = GroupBrokenError(reason)
            self._heard.notify_all()
        for peer in self._peers:
            peer.kill()
        self._ranks.end()
        if self._everyone is not None:
            self._everyone.end()

    def _watch(self) -> None:
        while not self._is_closed:
            with self._heard:
                self._heard.wait_for(lambda: self._is_closed or any(p.is_gone for p in self._peers), LOOK_S)
            if self._is_closed:
                return
            reason = self._fault(time.monotonic())
            if reason:
                logger.error("the group of ranks has ended: %s", reason)
                self._end(reason)
                return

    def _unwatched(self, error: BaseException) -> None:
        """Nobody would see any more that a rank has gone, or hangs: the group ends."""
        self._end(f"nobody watches its ranks any more ({error!r})")

    def _fault(self, now: float) -> str:
        """What is wrong with a rank; empty: nothing that shows from outside."""
        since = self._running_since
        if now - self._looked_s > PAUSE_S:
            self._awake_s = now  # we were stopped ourselves, and with us, perhaps, all of them
        self._looked_s = now
        for peer in self._peers:
            done = peer.done
            if done is not None and done.number == 0 and done.failure:
                return f"rank {peer.rank}: {done.failure}"
            if peer.is_gone:
                return f"rank {peer.rank} (process {peer.pid}) has ended: {peer.ending}"
            patience = SILENT_S if peer.is_loaded else SILENT_LOADING_S
            if now - max(peer.last_heard_s, self._awake_s) > patience:
                return (
                    f"rank {peer.rank} (process {peer.pid}) has not said for {patience:g} s that it is there"
                )
            is_now = done is not None and done.number == self._number
            has_failed = self._everyone is None and since is not None and is_now and done and done.failure
            if done is not None and has_failed and now - peer.done_s > STUCK_S:
                return f"rank {peer.rank} failed alone: {done.failure}"
        return self._hang(now)

    def _hang(self, now: float) -> str:
        """Whether nobody gets on with a call, though all are there; empty: they do. Steps of any length add up on their
        way: what has never been so quiet hangs."""
        num_answers = sum(peer.done.number for peer in self._peers if peer.done is not None)
        progress = self._number + num_answers, self._ranks.progress
        if self._running_since is None or progress != self._progress:
            if self._running_since is not None:
                self._longest_quiet = max(self._longest_quiet, now - self._progress_s)
            self._progress, self._progress_s = progress, now
            return ""
        least_s = HUNG_S if self._everyone is None else HUNG_STAGE_S
        patience = max(least_s, HUNG_FACTOR * self._longest_quiet)
        if now - self._progress_s <= patience:
            return ""
        return f"call {self._number} has not got on for {patience:.0f} s"


def _add(times: RankTimes, took: float, collectives: float) -> None:
    times.compute += took - collectives
    times.collectives += collectives
