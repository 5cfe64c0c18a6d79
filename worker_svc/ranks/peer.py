"""Another rank, as rank 0 sees it."""

from __future__ import annotations

import contextlib
import logging
import socket
import subprocess
import threading
import time

from signalbox.v1 import ranks_pb2
from worker_svc.ranks import frames

logger = logging.getLogger(__name__)
KILL_S = 2.0


class Peer:
    """A process on the other end of a socket. A thread of its own reads what it says."""

    def __init__(
        self,
        rank: int,
        told: socket.socket,
        says: socket.socket,
        heard: threading.Condition,
        process: subprocess.Popen[bytes] | None = None,
    ) -> None:
        """told, says: the ends of what it is told and of what it says; one socket on this host. heard: notified of
        everything that it says. process: it, as a child; None: it is on another host."""
        self.rank = rank
        self._told, self._says, self._heard, self._process = told, says, heard, process
        self.is_gone = False
        self.last_heard_s = time.monotonic()
        self.done: ranks_pb2.RankDone | None = None
        """What it said last of a call, or of its loading."""
        self.all_done: dict[int, ranks_pb2.RankDone] = {}
        """What it has said of calls and nobody has read, by their numbers."""
        self.done_s = 0.0
        """When it said that."""
        self.is_loaded = False
        self.bytes_sent = 0
        threading.Thread(target=self._read, name=f"rank-{rank}", daemon=True).start()

    def send(self, message: ranks_pb2.RankMessage) -> None:
        """Tells it something. OSError when it is gone."""
        self.bytes_sent += frames.send(self._told, message)

    def kill(self) -> None:
        """Ends it, whatever it does: also where it was stopped. On another host it ends as soon as it hears that we are
        gone."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.kill()
        for connection in (self._told, self._says):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def wait(self) -> None:
        """Waits until it has ended, if it is a child."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(KILL_S)

    @property
    def pid(self) -> int:
        """Its process; 0 on another host."""
        return 0 if self._process is None else self._process.pid

    @property
    def ending(self) -> str:
        """How it ended, for a log."""
        status = None if self._process is None else self._process.poll()
        if status is None:
            return "it has closed its connection"
        return f"signal {-status}" if status < 0 else f"status {status}"

    def _read(self) -> None:
        try:
            while (answer := frames.receive(self._says, ranks_pb2.RankAnswer)) is not None:
                self._take(answer)
        except Exception:
            logger.exception("what rank %d says cannot be read", self.rank)
        finally:  # whatever ends the thread: nobody hears the rank any more
            if self._process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(0.2)
            with self._heard:
                self.is_gone = True
                self._heard.notify_all()

    def _take(self, answer: ranks_pb2.RankAnswer) -> None:
        with self._heard:
            self.last_heard_s = time.monotonic()
            which = answer.WhichOneof("answer")
            if which in ("loaded", "done"):
                self.done, self.done_s = getattr(answer, which), self.last_heard_s
                self.is_loaded = True
                if which == "done":
                    self.all_done[answer.done.number] = answer.done
                self._heard.notify_all()
