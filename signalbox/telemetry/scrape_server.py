"""An HTTP server for scrapes, in threads: as prometheus_client's own, with bounds for whoever only connects.

prometheus_client makes TLS handshakes where it accepts connections, so one client that says nothing keeps all others
out. Here each is made in the connection's own thread, and the connection counts from when it was accepted.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from signalbox.links.tls.scrapes import ScrapeGuard

log = logging.getLogger(__name__)

READ_S = 10.0
"""Most seconds between two pieces of a request, or of what the client takes of its answer; and of a whole handshake."""
MOST_CONNECTIONS = 32
"""At a time: one more closes the one that was opened first."""
PARTING_S = 2.0
"""Most seconds that a client whose handshake has failed is listened to, for it to read why."""
PARTING_READS = 4
_PLAIN_HTTP = "HTTP_REQUEST"
"""OpenSSL's word for a request in plaintext where a handshake should begin."""
_HERE_IS_TLS = (
    b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"These metrics are served over TLS: say https.\n"
)
_REFUSED = b"These metrics are for a monitor or an operator, and this certificate says another role.\n"
_MAY_READ = "signalbox.may_read"
App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _Handler(WSGIRequestHandler):
    timeout = READ_S
    server: ScrapeServer

    def get_environ(self) -> dict[str, Any]:
        """What is known of a request, and whether its client may have an answer."""
        return {**super().get_environ(), _MAY_READ: self.server.may_read(self.connection)}

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads who scrapes."""


class ScrapeServer(ThreadingMixIn, WSGIServer):
    """Serves a registry. No client makes it hold more than a few threads, and none keeps the next one out."""

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, guard: ScrapeGuard | None = None
    ) -> None:
        """guard: TLS, and who may read; None: plaintext, and everybody. Raises OSError when it cannot listen there, and
        OverflowError when there is no such port."""
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        self._guard = guard
        self._open: deque[socket.socket] = deque()
        self._lock = threading.Lock()
        super().__init__((host, port), _Handler)
        self.set_app(_for_readers(make_wsgi_app(registry)))

    def get_request(self) -> tuple[Any, Any]:
        """The next connection, with TLS around it whose handshake is still to come: its own thread waits for it."""
        connection, client_address = super().get_request()
        if self._guard is not None:
            connection = self._guard.encrypt(connection)
        return connection, client_address

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for the connection."""
        with self._lock:
            self._open.append(request)
            oldest = self._open.popleft() if len(self._open) > MOST_CONNECTIONS else None
        if oldest is not None:
            _end(oldest)
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Handshake, request and answer, in the connection's thread. Raises OSError when the client does not go
        along."""
        if self._guard is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(_Handler.timeout)
        try:
            request.do_handshake()
        except ssl.SSLError as error:
            _part_with(request, _HERE_IS_TLS if error.reason == _PLAIN_HTTP else b"")
            raise
        super().finish_request(request, client_address)
        _say_goodbye(request)

    def may_read(self, connection: Any) -> bool:
        """Whether a client whose connection has come to a request gets an answer."""
        return self._guard is None or self._guard.may_read(connection)

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


def _for_readers(app: App) -> App:
    """Answers nobody else."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ[_MAY_READ]:
            return app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain")])
        return [_REFUSED]

    return answer


def _end(connection: socket.socket) -> None:
    """Ends it for its thread, which closes it. Past TLS: what that forgets here, its thread would go on without, and
    write in plaintext."""
    with contextlib.suppress(OSError):  # it may be closed already
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _part_with(connection: ssl.SSLSocket, said: bytes) -> None:
    """The end of a connection past TLS, behind the alert that says why, or behind what is `said` to a client that
    speaks plain HTTP. Closed with anything unread it would be reset, and its operator read of that."""
    connection.settimeout(PARTING_S / PARTING_READS)
    with contextlib.suppress(OSError):
        socket.socket.sendall(connection, said)
        socket.socket.shutdown(connection, socket.SHUT_WR)
        for _ in range(PARTING_READS):
            if not socket.socket.recv(connection, 1 << 16):
                return


def _say_goodbye(connection: ssl.SSLSocket) -> None:
    """TLS's own end, by which clients know that nothing was cut off. Theirs is not waited for."""
    connection.settimeout(0)
    with contextlib.suppress(OSError, ValueError):
        connection.unwrap()
