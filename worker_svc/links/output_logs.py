"""Tokens on their way to frontends: one log per frontend process, which outlives its streams. No clock, no network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from signalbox.links import versions
from signalbox.v1 import worker_pb2
from worker_svc.core.outbound_log import OutboundLog
from worker_svc.core.step import FrontendOutput
from worker_svc.links import delta
from worker_svc.links.unread import only_of, repeat

MESSAGE_BYTES = 1 << 20
"""Batches travel together up to this size: prompt log-probabilities can make a batch of megabytes."""


class Obeyed(NamedTuple):
    """The scheduler that a worker has a link to."""

    term: int
    instance: str


NOBODY = Obeyed(0, "")


@dataclass(eq=False)
class _Frontend:
    """A frontend's log and its stream."""

    instance: str
    log: OutboundLog
    log_number: int
    closed_at: float
    """Since when it has had no stream, in seconds; means nothing while it has one."""
    stream: OutputStream | None = None
    """The newest; an older one ends when it sees that it is not."""

    def wake(self) -> None:
        """The stream, if there is one, has something to do."""
        if self.stream is not None:
            self.stream.wake()


class OutputStream:
    """One stream of a frontend. Whoever writes it is woken when it has something to do."""

    def __init__(self, frontend: _Frontend, sent: int, wake: Callable[[], None]) -> None:
        """sent: number of the newest batch that the frontend has."""
        self.frontend, self.sent, self.wake = frontend, sent, wake
        self._is_greeted = False
        self._told = NOBODY
        """Whom the frontend knows us to obey."""
        self._has_written = self._is_silent = False

    def beat(self) -> None:
        """Has an empty message sent when nothing was written since the last call; to be called every HEARTBEAT_S."""
        self._is_silent = not self._has_written
        self._has_written = False
        if self._is_silent:
            self.wake()

    def next_message(self, worker_instance: str, obeyed: Obeyed) -> worker_pb2.StreamOutputsResponse | None:
        """What is to be written next: the greeting, what was not sent, whom we obey, or that we are here. None:
        nothing."""
        message = worker_pb2.StreamOutputsResponse(batches=self._take_batches() if self._is_greeted else ())
        if not self._is_greeted:
            message.worker_instance, message.log_number = worker_instance, self.frontend.log_number
            message.protocol.CopyFrom(versions.ours())
        elif not (message.batches or self._is_silent or self._told is not obeyed):
            return None
        if self._told is not obeyed:
            self._told = obeyed
            message.scheduler_epoch, message.scheduler_instance = obeyed
        self._is_greeted = self._has_written = True
        self._is_silent = False
        return message

    def _take_batches(self) -> list[worker_pb2.OutputBatch]:
        batches = _first_batches(self.frontend.log.after(self.sent))
        if batches:
            self.sent = batches[-1].sequence
        return batches


class OutputLogs:
    """The logs of all frontends of a worker. Times are of one clock that only rises, in seconds."""

    def __init__(self, worker_instance: str, max_bytes: int, timeout_s: float) -> None:
        """max_bytes: unread output kept per frontend. timeout_s: how long it is kept without a stream."""
        self.worker_instance = worker_instance
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._frontends: dict[str, _Frontend] = {}
        self._num_logs = 0
        self._obeyed = NOBODY

    def obey(self, obeyed: Obeyed) -> None:
        """Has all frontends told whom the worker obeys (T6). NOBODY is told to none, but ends what was."""
        self._obeyed = obeyed
        for frontend in self._frontends.values():
            frontend.wake()

    def append(self, outputs: list[FrontendOutput], now: float) -> None:
        """Adds what one step made."""
        for output in outputs:
            frontend = self._of(output.frontend_instance, now)
            batch = delta.build_outputs(output, frontend.log.next_sequence)
            frontend.log.append(batch.SerializeToString())
            frontend.wake()

    def unread_of(self, instance: str, attempt: int) -> list[worker_pb2.OutputBatch]:
        """What a frontend has not acknowledged of one of its attempts, oldest first."""
        frontend = self._frontends.get(instance)
        logged = frontend.log.after(0) if frontend is not None else ()
        parts = (only_of(worker_pb2.OutputBatch.FromString(raw), attempt) for _, raw in logged)
        return [part for part in parts if part is not None]

    def repeat(self, instance: str, batches: Iterable[worker_pb2.OutputBatch], leg: int, now: float) -> None:
        """Adds what a frontend has not acknowledged to the worker that had a request before."""
        frontend = self._of(instance, now)
        for batch in batches:
            frontend.log.append(repeat(batch, frontend.log.next_sequence, leg).SerializeToString())
        frontend.wake()

    def take_lost(self, now: float) -> list[str]:
        """Frontends that read nothing for too long or leave too much unread; their logs are forgotten."""
        lost = [
            instance
            for instance, frontend in self._frontends.items()
            if frontend.log.is_full or (self._is_away(frontend, now) and not frontend.log.is_empty)
        ]
        for instance in lost:
            self._frontends.pop(instance).wake()
        idle = [
            instance
            for instance, frontend in self._frontends.items()
            if self._is_away(frontend, now) and frontend.log.is_empty
        ]
        for instance in idle:
            del self._frontends[instance]
        return lost

    def _is_away(self, frontend: _Frontend, now: float) -> bool:
        return frontend.stream is None and now - frontend.closed_at > self._timeout_s

    def is_open(self, instance: str) -> bool:
        """The frontend has a stream."""
        frontend = self._frontends.get(instance)
        return frontend is not None and frontend.stream is not None

    @property
    def is_being_read(self) -> bool:
        """Some frontend has a stream, and something unread."""
        return any(frontend.stream and not frontend.log.is_empty for frontend in self._frontends.values())

    def unread(self) -> tuple[int, int, int]:
        """(logs, messages, bytes) that frontends have not acknowledged."""
        logs = [frontend.log for frontend in self._frontends.values()]
        return len(logs), sum(map(len, logs)), sum(log.num_bytes for log in logs)

    def _of(self, instance: str, now: float) -> _Frontend:
        frontend = self._frontends.get(instance)
        if frontend is None:
            self._num_logs += 1
            log = OutboundLog(self._max_bytes)
            frontend = self._frontends[instance] = _Frontend(instance, log, self._num_logs, now)
        return frontend

    # -- streams --

    def open(
        self, hello: worker_pb2.StreamOutputsRequest, now: float, wake: Callable[[], None]
    ) -> OutputStream:
        """A frontend opened a stream; the one that it had ends. `wake` is called when the new one has to do something,
        or has to end."""
        frontend = self._of(hello.frontend_instance, now)
        known = (hello.worker_instance, hello.log_number) == (self.worker_instance, frontend.log_number)
        older, frontend.stream = (
            frontend.stream,
            OutputStream(frontend, hello.acknowledged if known else 0, wake),
        )
        frontend.log.acknowledge(frontend.stream.sent)
        if older is not None:
            older.wake()
        frontend.wake()
        return frontend.stream

    def is_newest(self, stream: OutputStream) -> bool:
        """The frontend has opened no other, and its log was not given up."""
        frontend = stream.frontend
        return frontend.stream is stream and self._frontends.get(frontend.instance) is frontend

    def acknowledge(self, stream: OutputStream, message: worker_pb2.StreamOutputsRequest) -> None:
        """The frontend says how far it has read."""
        stream.frontend.log.acknowledge(message.acknowledged)

    def next_message(self, stream: OutputStream) -> worker_pb2.StreamOutputsResponse | None:
        """What is to be written to it next; None: nothing at present."""
        return stream.next_message(self.worker_instance, self._obeyed)

    def close(self, stream: OutputStream, now: float) -> None:
        """Ends the log's stream."""
        if stream.frontend.stream is stream:
            stream.frontend.stream, stream.frontend.closed_at = None, now


def _first_batches(log: Iterable[tuple[int, bytes]]) -> list[worker_pb2.OutputBatch]:
    """The first one, and as many more as make a message of MESSAGE_BYTES."""
    batches: list[worker_pb2.OutputBatch] = []
    num_bytes = 0
    for _, raw in log:
        num_bytes += len(raw)
        if batches and num_bytes > MESSAGE_BYTES:
            break
        batches.append(worker_pb2.OutputBatch.FromString(raw))
    return batches
