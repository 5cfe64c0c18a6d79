"""One worker's stream to the relay."""

from __future__ import annotations

import asyncio

from signalbox.errors import ResourceExhaustedError, SignalboxError
from signalbox.links.outbox import Outbox, OutboxFullError

MAX_OUTBOX = 10_000


class WorkerLink:
    """A worker's link from its first message until one side ends it."""

    def __init__(self, number: int) -> None:
        self.number = number
        """Names the link on the relay's stream."""
        self.outbox = Outbox[bytes](MAX_OUTBOX)
        """Serialized AttachWorkerResponse messages, for the stream's writer."""
        self.ended: asyncio.Future[SignalboxError | None] = asyncio.get_running_loop().create_future()
        """Done when the link is to end for the relay's or the scheduler's sake, with what the worker is told; None: the
        stream just ends, as the scheduler's own would."""

    def deliver(self, message: bytes) -> None:
        """Takes a message of the scheduler. A worker that does not read loses its link."""
        try:
            self.outbox.put(message)
        except OutboxFullError as error:
            self.end(ResourceExhaustedError(str(error)))

    def end(self, error: SignalboxError | None) -> None:
        """Asks for the end of the worker's stream. Idempotent: the first reason counts."""
        if not self.ended.done():
            self.ended.set_result(error)
