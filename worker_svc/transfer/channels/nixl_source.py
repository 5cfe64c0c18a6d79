"""The source's end of NIXL: lets agents read its cache, and answers for as long as a pull may be read."""

from __future__ import annotations

import logging
import threading
import time

from signalbox.v1.transfer_offer_pb2 import Strip, TransferOffer
from worker_svc.transfer.block_memory import BlockMemory
from worker_svc.transfer.channels.nixl_agent import NixlAgent
from worker_svc.transfer.errors import TransferError

logger = logging.getLogger(__name__)
DRIVE_S = 1e-3
"""Seconds between two looks for what targets wait for. Ten looks in that time made nothing faster."""


class NixlSource:
    """Registers the cache with an agent. Any thread may ask."""

    def __init__(self, agent: NixlAgent, memory: BlockMemory) -> None:
        """Raises TransferError where the cache cannot be registered."""
        self._agent = agent
        strips = [rows for group in memory.groups for rows in group]
        self._registered = agent.register(*strips)
        self._metadata = agent.metadata
        self._strips = [
            Strip(offset=rows.ctypes.data, num_blocks=len(rows), bytes_per_block=rows.shape[1])
            for rows in strips
        ]
        self._num_pulls, self._is_closed = 0, False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._drive, name="transfer-nixl", daemon=True)
        self._thread.start()

    def fill(self, offer: TransferOffer) -> None:
        """Says in an offer how the blocks are had."""
        offer.nixl_metadata = self._metadata
        offer.nixl_strips.extend(self._strips)

    def change(self, num_pulls: int) -> None:
        """So many pulls may be read now: while there are any, targets are answered."""
        with self._changed:
            self._num_pulls = num_pulls
            self._changed.notify()

    def close(self) -> None:
        """Answers nobody any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()
        self._agent.forget(self._registered)

    def _drive(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._num_pulls or self._is_closed)
                if self._is_closed:
                    return
            try:
                self._agent.drive()
            except TransferError as error:
                logger.warning("targets are not answered: %s", error)
                time.sleep(1)
            time.sleep(DRIVE_S)
