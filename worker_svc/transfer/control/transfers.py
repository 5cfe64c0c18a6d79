"""Both ends of the control streams of one worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from signalbox.protocol.parts.names import WorkerName
from worker_svc.core.batch import HandoffRunner
from worker_svc.transfer.channels.block_server import BlockServer
from worker_svc.transfer.channels.names import ALL
from worker_svc.transfer.control.mover import Mover
from worker_svc.transfer.control.news import (
    Arrival,
    News,
    PullBegun,
    PullOver,
    SourceNews,
)
from worker_svc.transfer.control.pull_target import PullTarget
from worker_svc.transfer.control.source import TransferSource, Unread
from worker_svc.transfer.control.target import TransferTarget


class Transfers:
    """What is read here, and what is written. The event loop owns it."""

    def __init__(
        self,
        name: WorkerName,
        runner: HandoffRunner,
        unread: Unread,
        post: Callable[[Arrival], None],
        *,
        server: BlockServer | None = None,
        checksums: bool = False,
        channels: Sequence[str] = ALL,
    ) -> None:
        """name: of this worker. post: brings what arrives to the step thread. server: the channels that are offered.
        checksums: blocks that come by TCP are checked. channels: those that are taken, the best first."""
        self._server = server
        self._mover = Mover(runner, checksums=checksums, channels=channels)
        self.source = TransferSource(name, self._mover, unread, post, server)
        self._target, self._pulls = (
            TransferTarget(name, self._mover, post),
            PullTarget(name, self._mover, post),
        )

    def take(self, news: News) -> None:
        """Takes what the step thread says."""
        if isinstance(news, SourceNews):
            self.source.take(news)
        elif isinstance(news, PullBegun | PullOver):
            self._pulls.take(news)
        else:
            self._target.take(news)

    async def close(self) -> None:
        """Ends all that is under way."""
        await self._target.close()
        await self._pulls.close()
        if self._server is not None:
            await self._mover.end(self._server.close)
        self._mover.close()
