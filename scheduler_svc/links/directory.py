"""The ways from the scheduler to workers and frontends."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

from signalbox.links.outbox import Outbox, OutboxFullError
from signalbox.v1 import shared_pb2, to_frontend_pb2, to_worker_pb2

logger = logging.getLogger(__name__)

MAX_OUTBOX = 100_000
MAX_WORKER_BYTES = 256 << 20
"""What may wait for one worker, or one relay: the requests of a whole batch, many times over (W1)."""
MAX_FRONTEND_BYTES = 32 << 20
"""Most bytes of notices and directories that wait for a frontend."""
Send = Callable[[to_worker_pb2.AttachWorkerResponse], None]
"""Takes a message for a worker on its way. Raises OutboxFullError when too many wait."""


def close_nothing() -> None:
    """The way of a worker in a test, which has no stream."""


class WorkerLink:
    """The way to one worker: a stream of its own, or its part of a relay's."""

    def __init__(
        self,
        instance: str,
        model: shared_pb2.ModelEntry,
        send: Send,
        close: Callable[[], None] = close_nothing,
    ) -> None:
        """`instance`: UUID of the worker process."""
        self.instance = instance
        self.model = model
        self.sent_at = -math.inf
        self.close = close
        """Ends the stream. May be called twice, and from whoever's message brought it about; raises nothing."""
        self.timer: object | None = None
        """Set while a step is held back."""
        self._send = send

    def send(self, message: to_worker_pb2.AttachWorkerResponse, now: float) -> None:
        """Sends a message. Raises OutboxFullError."""
        self._send(message)
        self.sent_at = now


class FrontendLink:
    """The stream of one frontend."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.outbox: Outbox[to_frontend_pb2.AttachFrontendResponse] = Outbox(
            MAX_OUTBOX, MAX_FRONTEND_BYTES, lambda message: message.ByteSize()
        )
        self.is_closed = asyncio.Event()
        """Set when the stream is to end: the frontend does not read, or has another one."""
        self.sent_at = -math.inf

    def put(self, message: to_frontend_pb2.AttachFrontendResponse, now: float) -> bool:
        """Sends a message. False: too many wait, and the link is closed."""
        try:
            self.outbox.put(message)
            self.sent_at = now
        except OutboxFullError:
            logger.error("frontend %s does not read its messages", self.instance)
            self.is_closed.set()
        return not self.is_closed.is_set()
