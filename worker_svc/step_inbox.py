"""The way into a step engine, whoever drives it: what the links hand in, in one order."""

from __future__ import annotations

from collections.abc import Callable

from signalbox.v1 import scheduler_pb2
from worker_svc.step_items import Announce, ArrivedStep, Item, Snapshot


class StepInbox:
    """Puts what arrives behind each other. Any thread may call its methods."""

    def __init__(self, post: Callable[[Item], None], clock: Callable[[], float]) -> None:
        """post: brings an item to the engine; clock: the engine's."""
        self._post, self._clock = post, clock

    def put(self, message: scheduler_pb2.AttachWorkerResponse) -> None:
        """Takes what the scheduler sent."""
        now = self._clock()
        for request in message.new_requests:
            self._post(request)
        for step in message.steps:
            self._post(ArrivedStep(step, now))

    def announce(self) -> None:
        """Says once more what became of grammars, for a scheduler that has just been greeted."""
        self._post(Announce())

    def snapshot(self) -> Snapshot:
        """The state after all steps that have arrived; None when nothing has ever run here."""
        future = Snapshot()
        self._post(future)
        return future
