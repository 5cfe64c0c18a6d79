"""This process as an agent of NIXL, for blocks to go by it in both directions. NIXL is imported here alone, and only
where a setting asks for it."""

from __future__ import annotations

import contextlib
import importlib
import logging
import threading
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from signalbox.errors import StartupError
from worker_svc.transfer.errors import TransferError

MODULE = "nixl_cu12"
MEMORY = "DRAM"
MOST_IN_DOUBT = 8
"""So many buffers of reads that were broken off are kept when their connection has ended, which should do."""
Buffer = tuple[Any, NDArray[np.uint8]]
"""Memory, behind what `register` has returned for it."""
Strided = NDArray[np.uint64]
"""[strips, 5] address, bytes of a row, device (0), bytes from row to row, rows"""


@dataclass
class _Peer:
    """Another agent that is known here."""

    num_pulls: int = 0
    in_doubt: list[Buffer] = field(default_factory=list)
    """Buffers of pulls from it that were broken off, while there are others."""


class NixlAgent:
    """An agent that is driven by whoever waits: NIXL's own thread would keep a core busy, and TCP slow. Any thread may
    ask. What NIXL raises is a TransferError here."""

    def __init__(self) -> None:
        """Raises StartupError where NIXL is not installed, or does not start."""
        try:
            nixl = importlib.import_module(MODULE)
        except ImportError as error:
            raise StartupError(
                f"--transfer-channels names nixl, which is not here ({error}): pip install 'signalbox[nixl]'"
            ) from None
        _quieten()
        config = nixl.nixl_agent_config(
            enable_prog_thread=False, sync_mode=nixl.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
        )
        try:
            self._agent = nixl.nixl_agent(uuid.uuid4().hex, config)
        except Exception as error:
            raise StartupError(f"NIXL does not start: {error}") from None
        if not self._agent.backends:
            raise StartupError("NIXL does not start: it lacks UCX")
        self._peers: dict[str, _Peer] = {}
        self._in_doubt: deque[Buffer] = deque()
        self._lock = threading.Lock()

    @property
    def metadata(self) -> bytes:
        """What another agent has to know to read what is registered here, until this process ends."""
        with _told():
            return bytes(self._agent.get_agent_metadata())

    def register(self, *arrays: NDArray[np.uint8]) -> Any:
        """Lets memory be read by others, and read into. Returns what `forget` takes."""
        with _told():
            return self._agent.register_memory(
                [(array.ctypes.data, array.nbytes, 0, "") for array in arrays if array.nbytes], MEMORY
            )

    def forget(self, registered: Any) -> None:
        """Undoes a `register`."""
        with contextlib.suppress(Exception):  # it does so itself when this process ends
            self._agent.deregister_memory(registered)

    def meet(self, metadata: bytes) -> str:
        """The name of another agent, for a pull from it, which ends with `leave`."""
        with self._lock, _told():
            name = self._agent.add_remote_agent(metadata)
            name = name.decode() if isinstance(name, bytes) else str(name)
            self._peers.setdefault(name, _Peer()).num_pulls += 1
            return name

    def leave(self, name: str, *in_doubt: Buffer) -> None:
        """The end of a pull. With the last one from that agent the connection to it ends, and what was under way.
        in_doubt: memory that a read which was broken off may still write to."""
        with self._lock:
            peer = self._peers[name]
            peer.num_pulls -= 1
            peer.in_doubt += in_doubt
            if not peer.num_pulls:
                del self._peers[name]
                with contextlib.suppress(Exception):  # it may be gone
                    self._agent.remove_remote_agent(name)
                self._in_doubt += peer.in_doubt
            while len(self._in_doubt) > MOST_IN_DOUBT:
                self.forget(self._in_doubt.popleft()[0])

    def prepare(self, rows: Strided, peer: str = "NIXL_INIT_AGENT") -> Any:
        """A list of rows of a peer's memory, or of this process's, from which those of reads are chosen."""
        with _told():
            return self._agent.prep_xfer_dlist(peer, rows, MEMORY)

    def begin(self, to: Any, to_rows: NDArray[np.int32], source: Any, rows: NDArray[np.int32]) -> Any:
        """Begins to read `rows` of one list into those of another."""
        with _told():
            read = self._agent.make_prepped_xfer("READ", to, to_rows, source, rows)
            self._agent.transfer(read)
            return read

    def is_done(self, read: Any) -> bool:
        """Whether all of a read is there. Moves it on. TransferError if it never will be."""
        with _told():
            state = self._agent.check_xfer_state(read)
        if state == "ERR":
            raise TransferError("NIXL has lost the source")
        return bool(state == "DONE")

    def release(self, prepared: Any) -> None:
        """Gives back a list, or a read: one that is under way is broken off."""
        with contextlib.suppress(Exception):  # it does so itself, later
            prepared.release()

    def drive(self) -> None:
        """Does what others wait for: where a network cannot read memory by itself, this process has to answer."""
        with _told():
            self._agent.get_new_notifs()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Whatever NIXL raises, each kind of its own, is a TransferError."""
    try:
        yield
    except Exception as error:
        raise TransferError(f"NIXL: {error or type(error).__name__}") from None


def _quieten() -> None:
    """It logs each agent to stdout, and has told the whole process to hide errors of logging."""
    logger = logging.getLogger("nixl")
    logger.handlers.clear()
    logger.propagate = True
    logger.setLevel(logging.WARNING)
    logging.raiseExceptions = True
