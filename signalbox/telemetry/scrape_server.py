"""An HTTP server for scrapes, in threads: as prometheus_client's own, with bounds for whoever only connects."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import threading
from collections import deque
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

log = logging.getLogger(__name__)

READ_S = 10.0
"""Most seconds between two pieces of a request, or of what the client takes of its answer."""
MOST_CONNECTIONS = 32
"""At a time: one more closes the one that was opened first."""


class _Handler(WSGIRequestHandler):
    timeout = READ_S

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads who scrapes."""


class ScrapeServer(ThreadingMixIn, WSGIServer):
    """Serves a registry. No client makes it hold more than a few threads, and none keeps the next one out."""

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        """Raises OSError when it cannot listen there, and OverflowError when there is no such port."""
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        self._open: deque[socket.socket] = deque()
        self._lock = threading.Lock()
        super().__init__((host, port), _Handler)
        self.set_app(make_wsgi_app(registry))

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for the connection."""
        with self._lock:
            self._open.append(request)
            oldest = self._open.popleft() if len(self._open) > MOST_CONNECTIONS else None
        if oldest is not None:
            _end(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """The connection is closed."""
        with self._lock:
            if request in self._open:
                self._open.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever goes away in the middle is no event; all else is a bug."""
        if not isinstance(sys.exc_info()[1], OSError):
            log.exception("a scrape failed")


def _end(connection: socket.socket) -> None:
    """Ends it for its thread, which closes it."""
    with contextlib.suppress(OSError):  # it may be closed already
        connection.shutdown(socket.SHUT_RDWR)
