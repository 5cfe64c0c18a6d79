"""What a worker opens for others to fetch blocks, as its settings say."""

from __future__ import annotations

from worker_svc.config import WorkerSettings
from worker_svc.core.batch import ModelRunner
from worker_svc.transfer.block_memory import BlockMemory, OffersBlocks
from worker_svc.transfer.channels.block_server import BlockServer
from worker_svc.transfer.channels.names import SHARED_MEMORY, TCP


def blocks_of(runner: ModelRunner) -> BlockMemory | None:
    """The blocks of a runner that travel by channels of their own; None: there are none, or in messages alone."""
    memory = runner.block_memory if isinstance(runner, OffersBlocks) else None
    return memory if isinstance(memory, BlockMemory) else None


def open_server(settings: WorkerSettings, memory: BlockMemory | None) -> BlockServer | None:
    """The channels that can be opened; those that cannot are logged. None: blocks go in messages alone."""
    if memory is None:
        return None
    names = settings.channel_names
    host = (settings.advertise or settings.listen).rpartition(":")[0]
    return BlockServer(
        memory,
        listen=settings.transfer_address if TCP in names else None,
        advertise_host=host,
        sockets_dir=settings.transfer_sockets_dir,
        shares_memory=SHARED_MEMORY in names,
    )
