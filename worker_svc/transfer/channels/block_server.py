"""What a source has open for targets: its channels, and the pulls that may use them."""

from __future__ import annotations

import logging
from pathlib import Path

from signalbox.links.tls.identity import ours
from signalbox.v1.transfer_offer_pb2 import TransferOffer
from worker_svc.transfer.block_memory import BlockMemory
from worker_svc.transfer.channels.registrations import MayRead, Registrations
from worker_svc.transfer.channels.shared_source import SharedSource, host_id
from worker_svc.transfer.channels.tcp_source import TcpSource

logger = logging.getLogger(__name__)


class BlockServer:
    """The source's side of all channels. Any thread may ask."""

    def __init__(
        self,
        memory: BlockMemory,
        *,
        listen: str | None = None,
        advertise_host: str | None = None,
        sockets_dir: Path | None = None,
        shares_memory: bool = True,
    ) -> None:
        """Opens what can be opened; what cannot is logged, and not offered. listen: host:port of the TCP channel, port
        0: any; None: there is none. advertise_host: where targets find it; None: the host it listens on. sockets_dir:
        where the socket for shared memory is made; None: where temporary files are. shares_memory: whether that is
        offered, where the cache lies in it."""
        self._memory, self._registrations = memory, Registrations()
        self._identity = ours()
        self._tcp: TcpSource | None = None
        self._tcp_address = ""
        if listen is not None:
            self._open_tcp(listen, advertise_host)
        can_share = shares_memory and memory.shared is not None
        self._shared = self._open_shared(sockets_dir) if can_share else None

    def register(self, token: bytes, may_read: MayRead) -> None:
        """Lets whoever shows `token` (`new_token`) read what `may_read` allows; by shared memory all that this worker
        has in its cache."""
        self._registrations.add(token, may_read)

    def withdraw(self, token: bytes) -> None:
        """Returns when nothing of that pull is read here any more, and nothing will be. What a target has mapped it can
        read on, and finds there what others write. A token that is not registered is none."""
        self._registrations.withdraw(token)

    def offer(self, token: bytes) -> TransferOffer:
        """The channels for the pull of `token`."""
        offer = TransferOffer(token=token, layout_digest=self._memory.digest)
        if self._tcp is not None:
            offer.tcp_address, offer.is_tls = self._tcp_address, self._identity is not None
        if self._shared is not None:
            offer.host_id, offer.socket_path = host_id(), str(self._shared.path)
        return offer

    def close(self) -> None:
        """Ends all pulls, and closes all channels."""
        for channel in (self._tcp, self._shared):
            if channel is not None:
                channel.close()
        self._registrations.withdraw_all()

    def _open_tcp(self, listen: str, advertise_host: str | None) -> None:
        host, _, port = listen.rpartition(":")
        try:
            self._tcp = TcpSource(
                self._memory, self._registrations, (host.strip("[]"), int(port)), self._identity
            )
        except OSError as error:
            logger.warning("blocks are not offered over TCP: %s: %s", listen, error.strerror or error)
            return
        self._tcp_address = f"{advertise_host or host}:{self._tcp.port}"

    def _open_shared(self, sockets_dir: Path | None) -> SharedSource | None:
        try:
            return SharedSource(self._memory, self._registrations, sockets_dir)
        except OSError as error:
            logger.warning("blocks are not offered in shared memory: %s", error)
            return None
