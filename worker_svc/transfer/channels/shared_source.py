"""The source's end of shared memory: hands the descriptor of its cache to whoever shows a token, and has no part in
what is read then."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from google.protobuf.message import DecodeError

from signalbox.v1.transfer_offer_pb2 import ChannelHello, ChannelWelcome, Strip
from worker_svc.transfer.block_memory import BlockMemory
from worker_svc.transfer.channels.acceptor import Acceptor, Welcome
from worker_svc.transfer.channels.registrations import Registrations
from worker_svc.transfer.channels.streams import STALL_S
from worker_svc.transfer.errors import TransferError
from worker_svc.transfer.shared_memory import SharedMemory

MOST_HELLO_BYTES = 256
MOST_ADDRESS_BYTES = 107
"""Most bytes of a unix socket's address (unix(7)), without the NUL at its end."""
_CREDENTIALS = struct.Struct("3i")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class SharedSource:
    """Listens on a unix socket in a directory of its own, which nobody else may enter."""

    def __init__(
        self, memory: BlockMemory, registrations: Registrations, sockets_dir: Path | None = None
    ) -> None:
        """sockets_dir: where the directory is made; None: where temporary files are. memory: has to be shared. Raises
        OSError."""
        assert memory.shared is not None
        self._shared: SharedMemory = memory.shared
        self._memory, self._registrations = memory, registrations
        self._welcome = ChannelWelcome(strips=strips_of(memory, self._shared)).SerializeToString()
        self._folder = Path(tempfile.mkdtemp(prefix="signalbox-", dir=sockets_dir))
        self.path = self._folder / "blocks"
        try:
            self._acceptor = Acceptor(self._listen(), self._serve, "transfer-shared")
        except OSError:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def close(self) -> None:
        """Hands out nothing any more."""
        self._acceptor.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with socket_address(self.path) as address:
                listener.bind(address)
            self.path.chmod(0o600)
        except OSError:
            listener.close()
            raise
        return listener

    def _serve(self, connection: socket.socket, welcome: Welcome) -> None:
        check_same_user(connection)
        connection.settimeout(STALL_S)
        try:
            hello = ChannelHello.FromString(connection.recv(MOST_HELLO_BYTES))
        except DecodeError:
            raise TransferError("a frame that is none of ours") from None
        self._registrations.find(hello.token)
        if hello.layout_digest != self._memory.digest:
            raise TransferError("the blocks of the target are others than ours")
        welcome()
        socket.send_fds(connection, [self._welcome], [self._shared.fd])


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """Where the unix socket at `path` is bound or dialled: by way of a descriptor of its directory where the path is
    longer than an address may be."""
    if len(os.fsencode(path)) <= MOST_ADDRESS_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def strips_of(memory: BlockMemory, shared: SharedMemory) -> list[Strip]:
    """Where each strip lies, group by group."""
    strips = []
    for group in memory.groups:
        for rows in group:
            offset = shared.offset_of(rows)
            assert offset is not None, "all of a shared memory's strips lie in it"
            strips.append(Strip(offset=offset, num_blocks=len(rows), bytes_per_block=rows.shape[1]))
    return strips


def check_same_user(connection: socket.socket) -> None:
    """TransferError if another user than ours is at the other end."""
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(packed)
    if uid != os.geteuid():
        raise TransferError(f"user {uid} is at the other end")


def host_id() -> str:
    """This machine since it was started; empty: it is not known. Containers of one machine have the same."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
