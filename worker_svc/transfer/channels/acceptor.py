"""A socket that is listened on, each connection in a thread of its own, with bounds for whoever only connects."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from signalbox.runtime.bounded_lines import BoundedLines
from signalbox.runtime.parts import FAILURES, Thread, start_thread
from worker_svc.transfer.errors import TransferError

logger = logging.getLogger(__name__)
MOST_STRANGERS = 16
"""Connections at a time that have not shown a token: one more closes the one that was opened first."""
BREATH_S = 0.1
"""Seconds before the next connection is looked for, where the process had no room for one."""
Prepare = Callable[[socket.socket], socket.socket]
"""A callable that makes of a connection what is served, without waiting. It may raise OSError."""
Welcome = Callable[[], None]
Serve = Callable[[socket.socket, Welcome], None]
"""A callable that serves a connection to its end, and says when whoever is there has shown a token. Closing the
connection is not its business. It may raise TransferError or OSError."""


class Acceptor:
    """Serves what connects, until it is closed."""

    def __init__(
        self,
        listener: socket.socket,
        serve: Serve,
        name: str,
        prepare: Prepare = lambda connection: connection,
    ) -> None:
        """listener: bound, and listening from here on; it is closed with this. name: of its threads, and in logs."""
        self._listener, self._serve, self._name, self._prepare = listener, serve, name, prepare
        self._strangers: deque[socket.socket] = deque()
        self._lock = threading.Lock()
        self._is_closed = False
        self._lines = BoundedLines()
        listener.listen(MOST_STRANGERS)
        self._thread = start_thread(name, self._accept)

    def close(self) -> None:
        """No connection is taken any more, and strangers are sent away. Those that have shown a token are others'
        business."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        with self._lock:
            for stranger in self._strangers:
                _send_away(stranger)

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed, or no room for one more file
                if not self._is_closed:
                    time.sleep(BREATH_S)
                continue
            try:
                self._take(connection)
            except Exception as error:  # no thread to be had, or whatever: the next connection may be luckier
                connection.close()
                self._tell(error)

    def _take(self, connection: socket.socket) -> None:
        prepared = self._prepare(connection)
        self._enter(prepared)
        try:
            Thread(target=self._run, args=(prepared,), name=self._name, daemon=True).start()
        except Exception:
            self._leave(prepared)
            prepared.close()
            raise

    def _enter(self, connection: socket.socket) -> None:
        with self._lock:
            if len(self._strangers) >= MOST_STRANGERS:
                _send_away(self._strangers.popleft())
            self._strangers.append(connection)

    def _run(self, connection: socket.socket) -> None:
        try:
            self._serve(connection, lambda: self._leave(connection))
        except (TransferError, OSError) as error:
            self._tell(error)
        except Exception as error:
            FAILURES.add(self._name, error)
        finally:
            self._leave(connection)
            connection.close()

    def _leave(self, connection: socket.socket) -> None:
        with self._lock, contextlib.suppress(ValueError):  # not a stranger any more
            self._strangers.remove(connection)

    def _tell(self, error: Exception) -> None:
        with self._lock:
            num_left_out = self._lines.take()
        if num_left_out is not None and not self._is_closed:
            logger.info("%s: a connection ended: %s", self._name, error, extra={"num_left_out": num_left_out})


def _send_away(connection: socket.socket) -> None:
    """Its thread hears of it, and closes it."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
