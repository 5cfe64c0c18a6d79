"""The command line's HTTP against a real server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from signalbox.cli.http_client import HttpClient
from signalbox.errors import (
    AuthenticationError,
    InternalError,
    InvalidRequestError,
    ResourceExhaustedError,
    SignalboxError,
    UnavailableError,
)
from tests.ports import free_ports


class Handler(BaseHTTPRequestHandler):
    """The path says what to answer."""

    def do_GET(self) -> None:
        body = {"error": {"message": "no", "type": "invalid_request_error"}}
        self._answer(int(self.path.rpartition("/")[2]), json.dumps({"path": self.path, **body}))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        events = {
            "/stream": 'data: {"n": 1}\n\n: comment\n\ndata: {"n": 2}\n\ndata: [DONE]\n\n',
            "/broken": 'data: {"n": 1}\n\ndata: {"error": {"message": "the worker failed"}}\n\n',
        }
        self._answer(200, events[self.path])

    def _answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_path_in_the_url_stays(url: str) -> None:
    assert HttpClient(url + "/proxy/").get("/200")["path"] == "/proxy/200"


def test_events_are_read_up_to_done(url: str) -> None:
    assert list(HttpClient(url).post_stream("/stream", {})) == [{"n": 1}, {"n": 2}]


def test_an_error_in_the_stream_is_raised(url: str) -> None:
    events = HttpClient(url).post_stream("/broken", {})
    assert next(events) == {"n": 1}
    with pytest.raises(InternalError, match="the worker failed"):
        next(events)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequestError),
        (401, AuthenticationError),
        (429, ResourceExhaustedError),
        (503, UnavailableError),
        (500, InternalError),
        (418, InternalError),
    ],
)
def test_a_status_has_a_class(url: str, status: int, kind: type[SignalboxError]) -> None:
    with pytest.raises(SignalboxError) as error:
        HttpClient(url).get(f"/{status}")
    assert (type(error.value), error.value.message) == (kind, "no")


def test_nothing_answers() -> None:
    with pytest.raises(UnavailableError, match="nothing answers at http"):
        HttpClient(f"http://127.0.0.1:{free_ports(1)[0]}").get("/v1/models")


def test_a_url_needs_a_scheme() -> None:
    with pytest.raises(InvalidRequestError, match="is not a URL"):
        HttpClient("127.0.0.1:8000")
