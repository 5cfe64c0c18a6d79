"""Which of the channels that a source offers its target takes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from signalbox.links.tls.identity import ours
from signalbox.v1.transfer_offer_pb2 import TransferOffer
from worker_svc.transfer.block_memory import BlockMemory
from worker_svc.transfer.channels.kept_mappings import KeptMappings
from worker_svc.transfer.channels.names import ALL, SHARED_MEMORY, TCP
from worker_svc.transfer.channels.reader import BlockReader
from worker_svc.transfer.channels.shared_source import host_id
from worker_svc.transfer.channels.shared_target import SharedReader
from worker_svc.transfer.channels.tcp_target import TcpReader
from worker_svc.transfer.errors import TransferError

logger = logging.getLogger(__name__)


def choose(
    offer: TransferOffer,
    memory: BlockMemory,
    *,
    checksums: bool = False,
    mappings: KeptMappings | None = None,
    names: Sequence[str] = ALL,
) -> BlockReader | None:
    """The first of the channels `names` that is offered and opens; None: none does, and blocks come inline. Takes some
    seconds at most. memory: where blocks are written. checksums: blocks that come by TCP are checked. mappings: those
    of the pulls before; None: none is kept. TransferError if blocks of the source are none for `memory`."""
    if offer.layout_digest != memory.digest:
        raise TransferError(
            "the blocks of the source are others than ours: another model, type or block size"
        )
    channels: dict[str, Callable[[TransferOffer, BlockMemory], BlockReader | None]] = {
        SHARED_MEMORY: partial(_shared, mappings=mappings),
        TCP: partial(_tcp, checksums=checksums),
    }
    for name in names:
        try:
            reader = channels[name](offer, memory)
        except TransferError as error:
            logger.info("%s is offered and does not open: %s", name, error)
            continue
        if reader is not None:
            return reader
    return None


def _shared(
    offer: TransferOffer, memory: BlockMemory, *, mappings: KeptMappings | None
) -> BlockReader | None:
    if not offer.socket_path or not offer.host_id or offer.host_id != host_id():
        return None
    return SharedReader(memory, offer.socket_path, offer.token, mappings)


def _tcp(offer: TransferOffer, memory: BlockMemory, *, checksums: bool) -> BlockReader | None:
    if not offer.tcp_address:
        return None
    identity = ours()
    if offer.is_tls != (identity is not None):
        raise TransferError("one of the two workers has certificates, and the other has none")
    host, _, port = offer.tcp_address.rpartition(":")
    if not port.isdecimal():
        raise TransferError(f"{offer.tcp_address!r} is no address")
    address = (host.strip("[]"), int(port))
    return TcpReader(memory, address, offer.token, identity=identity, checksums=checksums)
