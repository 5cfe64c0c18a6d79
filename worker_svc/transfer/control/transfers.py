"""Both ends of the control streams of one worker."""

from __future__ import annotations

from collections.abc import Callable

from worker_svc.core.batch import HandoffRunner
from worker_svc.core.handoff.orders import WorkerName
from worker_svc.transfer.control.mover import Mover
from worker_svc.transfer.control.news import Arrival, ExportBegun, ExportGrew, ExportOver, News
from worker_svc.transfer.control.source import TransferSource, Unread
from worker_svc.transfer.control.target import TransferTarget


class Transfers:
    """What is read here, and what is written. The event loop owns it."""

    def __init__(
        self, name: WorkerName, runner: HandoffRunner, unread: Unread, post: Callable[[Arrival], None]
    ) -> None:
        """name: of this worker. post: brings what arrives to the step thread."""
        self._mover = Mover(runner)
        self.source = TransferSource(name, self._mover, unread)
        self._target = TransferTarget(name, self._mover, post)

    def take(self, news: News) -> None:
        """Takes what the step thread says."""
        if isinstance(news, ExportBegun | ExportGrew | ExportOver):
            self.source.take(news)
        else:
            self._target.take(news)

    async def close(self) -> None:
        """Ends all that is under way."""
        await self._target.close()
        self._mover.close()
