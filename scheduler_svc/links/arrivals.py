"""Workers that say hello, until they are taken in: one after the other, in pieces, and others go on between these
(docs/liveness.md, W3)."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TypeVar

from scheduler_svc.core.cluster.term import Term
from scheduler_svc.core.scheduler import Scheduler
from scheduler_svc.core.state.worker import Worker
from scheduler_svc.links.directory import Send, close_nothing
from scheduler_svc.links.greeting import Greeting
from signalbox.links import versions
from signalbox.links.heartbeat import HEARTBEAT_S
from signalbox.links.outbox import OutboxFullError
from signalbox.runtime.parts import FAILURES
from signalbox.v1 import to_worker_pb2

logger = logging.getLogger(__name__)

T = TypeVar("T")
_DONE = object()


@dataclass(eq=False)
class Arrival:
    """The stream of a worker that has begun to say hello."""

    greeting: Greeting
    send: Send
    close: Callable[[], None] = close_nothing
    """Ends the stream, as of a `WorkerLink`."""
    is_over: bool = False
    """The stream has ended, or the same process says hello on another one: nothing is to be sent on it."""
    sent_at: float = -math.inf
    num_missing: int = -1
    """Parts of its hello that were to come when it was last looked at; -1: it was not."""
    heard_at: float = 0.0
    """When one of them was first seen to have come, in seconds."""

    @property
    def worker_id(self) -> str:
        """Id of the worker."""
        return self.greeting.info.worker_id

    @property
    def instance(self) -> str:
        """UUID of the worker's process."""
        return self.greeting.info.instance

    def end(self) -> None:
        """Ends the stream from our side."""
        self.is_over = True
        self.close()


class Arrivals:
    """Workers that are taken in in the order in which their hellos were whole, so that a newer hello of a worker is
    taken when the older one has been."""

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], silence_s: float = math.inf
    ) -> None:
        """`call_soon` calls back when whatever else is ready has had its turn. `silence_s`: how long the next part of
        a hello may take (W1)."""
        self._call_soon, self._silence_s = call_soon, silence_s
        self._of: dict[str, Arrival] = {}
        self._jobs: deque[tuple[Iterator[None], Callable[[Exception], None]]] = deque()

    def __len__(self) -> int:
        """Workers that have begun, and are not there yet."""
        return len(self._of)

    def instance_of(self, worker_id: str) -> str | None:
        """The process that is arriving under the id; None: none is."""
        arrival = self._of.get(worker_id)
        return arrival.instance if arrival is not None else None

    def enter(self, arrival: Arrival) -> None:
        """A worker has begun to say hello. An older stream of the same worker is ended."""
        older = self._of.get(arrival.worker_id)
        self._of[arrival.worker_id] = arrival
        if older is not None:
            logger.warning("worker %s says hello again, before it was taken in", arrival.worker_id)
            older.end()

    def leave(self, arrival: Arrival) -> None:
        """Takes out a worker that is taken in, or refused, or whose stream has ended."""
        if self._of.get(arrival.worker_id) is arrival:
            del self._of[arrival.worker_id]

    def put(self, job: Iterator[None], on_error: Callable[[Exception], None]) -> None:
        """Takes a worker in whose hello is whole. `job` does a piece at a time; the first one at once if nobody is
        before it, so that a small hello is taken when it comes, and what is wrong with it is raised here. Later on
        `on_error` hears it."""
        if not self._jobs:
            if next(job, _DONE) is _DONE:
                return
            self._call_soon(self._do_piece)
        self._jobs.append((job, on_error))

    def _do_piece(self) -> None:
        job, on_error = self._jobs[0]
        is_done = True
        try:
            is_done = next(job, _DONE) is _DONE
        except Exception as error:
            try:
                on_error(error)
            except Exception as other:  # those who wait behind it are not to wait for ever
                FAILURES.add("hellos", other)
        if is_done:
            self._jobs.popleft()
        if self._jobs:
            self._call_soon(self._do_piece)

    def end_silent(self, now: float) -> None:
        """Ends the streams whose hellos do not go on: nobody else could come under their names (H5)."""
        for arrival in list(self._of.values()):
            num_missing = arrival.greeting.num_missing
            if num_missing != arrival.num_missing:
                arrival.num_missing, arrival.heard_at = num_missing, now
            elif num_missing and now - arrival.heard_at >= self._silence_s:
                logger.warning("worker %s does not end its hello", arrival.worker_id)
                self.leave(arrival)
                arrival.end()

    def beat(self, now: float) -> None:
        """Says that we live to whoever waits to be taken in."""
        for arrival in list(self._of.values()):
            if arrival.sent_at <= now - HEARTBEAT_S / 2 and not arrival.is_over:
                arrival.sent_at = now
                try:
                    arrival.send(to_worker_pb2.AttachWorkerResponse())
                except OutboxFullError:
                    arrival.end()


def finish(job: Generator[None, None, T]) -> T:
    """Does all pieces in one go; returns what comes of them."""
    while True:
        try:
            next(job)
        except StopIteration as end:
            result: T = end.value
            return result


def send_greeting(arrival: Arrival, term: Term) -> None:
    """The first message of a worker's link: who leads. Raises OutboxFullError."""
    arrival.send(
        to_worker_pb2.AttachWorkerResponse(
            scheduler_epoch=term.number, scheduler_instance=term.instance, protocol=versions.ours()
        )
    )


def adopt(
    core: Scheduler, arrival: Arrival, clock: Callable[[], float], on_begin: Callable[[str], None]
) -> Generator[None, None, Worker | None]:
    """Reads a hello that is whole, then adopts what its snapshot tells of; a yield stands between two pieces. The
    adoption, once begun, is carried to its end whatever happens to the stream: what the snapshot says stays true (W3).
    None: the stream has ended before. `on_begin` hears the worker's id when nothing can be refused any more.

    Raises ValueError when the offer contradicts our settings, or the snapshot itself, and nothing has changed then.
    """
    greeting = arrival.greeting
    yield from greeting.read()
    if arrival.is_over:
        return None
    adoption = core.begin_adoption(greeting.info, greeting.snapshot, clock())
    on_begin(arrival.worker_id)
    try:
        while not adoption.is_done:
            if not greeting.is_small:
                yield
            adoption.take_some(clock())
        if not greeting.is_small:
            yield
        worker = core.end_adoption(adoption, clock())
    except Exception:
        core.fail_adoption(adoption, clock())
        raise
    worker.vitals.heard_at = clock()
    num_held = len(greeting.snapshot.slots) if greeting.snapshot is not None else 0
    logger.info(
        "worker %s attached: %d blocks, %d slots held", arrival.worker_id, worker.info.num_blocks, num_held
    )
    return worker
