"""The command line's HTTP against a real server."""

from __future__ import annotations

import hashlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

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
        body = self.rfile.read(int(self.headers["content-length"]))
        events = {
            "/separators": 'data: {"n": "a\u2028b\x85c"}\r\n\ndata: [DONE]\n',
            "/stream": 'data: {"n": 1}\n\n: comment\n\ndata: {"n": 2}\n\ndata: [DONE]\n\n',
            "/broken": 'data: {"n": 1}\n\ndata: {"error": {"message": "the worker failed"}}\n\n',
        }
        self._answer(200, json.dumps(self._form_in(body)) if self.path == "/form" else events[self.path])

    def _form_in(self, body: bytes) -> dict[str, str]:
        """Fields of a form; of its file the hash and the name."""
        head = f"content-type: {self.headers['content-type']}\r\n\r\n".encode()
        purpose, file = message_from_bytes(head + body, policy=policy.HTTP).iter_parts()
        content = file.get_payload(decode=True)
        assert isinstance(content, bytes)
        return {
            str(purpose.get_param("name", header="content-disposition")): purpose.get_content(),
            str(file.get_param("name", header="content-disposition")): hashlib.sha256(content).hexdigest(),
            "filename": str(file.get_filename()),
        }

    def _answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body.encode())))
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


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8000",
        "localhost:8000",
        "ftp://a",
        "http://",
        "http://a:99999",
        "http://[::1",
        "http://a\n",
        "",
    ],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequestError, match="is not a URL"):
        HttpClient(url)


@pytest.mark.parametrize("key", ["sb_1\r\nx-other: 1", "sb_\u00e9"])
def test_a_key_that_no_header_may_have_is_not_repeated(key: str) -> None:
    with pytest.raises(InvalidRequestError) as error:
        HttpClient("http://127.0.0.1:1", api_key=key)
    assert "sb_" not in error.value.message


@contextmanager
def answering(*pieces: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A server that reads one request's head, sends these bytes whatever it was, and closes; its URL and the head."""
    heads: list[bytes] = []

    def serve() -> None:
        connection = listener.accept()[0]
        with connection:
            while b"\r\n\r\n" not in b"".join(heads):
                heads.append(connection.recv(65536))
            for piece in pieces:
                connection.sendall(piece)
            # A close with a body that was not read resets the connection, perhaps ahead of what it was sent.
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(10)
            while connection.recv(65536):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", heads
        thread.join(10)


def test_an_event_ends_at_a_newline_alone(url: str) -> None:
    """JSON may contain other characters at which Python ends lines."""
    assert list(HttpClient(url).post_stream("/separators", {})) == [{"n": "a\u2028b\x85c"}]


def test_an_event_may_come_in_pieces_and_the_last_without_its_end() -> None:
    head = b"HTTP/1.0 200 OK\r\n\r\n"
    with answering(head, b'data: {"n"', b": 1}\n\nda", b'ta: {"n": 2}') as (url, _):
        assert list(HttpClient(url).post_stream("/", {})) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200"])
def test_what_is_no_http_is_a_sentence(answer: bytes) -> None:
    with (
        answering(answer) as (url, _),
        pytest.raises(UnavailableError, match="does not answer as an HTTP server"),
    ):
        HttpClient(url).get("/")


CUT = (
    b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n11\r\ndata: {"n": 1}\n\n\r\n',
    b'HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\ndata: {"n": 1}\n\n',
)


@pytest.mark.parametrize("answer", CUT)
def test_a_stream_that_is_cut_is_a_sentence(answer: bytes) -> None:
    with answering(answer) as (url, _):
        events = HttpClient(url).post_stream("/", {})
        assert next(events) == {"n": 1}
        with pytest.raises(UnavailableError, match="the connection to http"):
            next(events)


@pytest.mark.parametrize("answer", CUT)
def test_a_file_that_is_cut_is_a_sentence(answer: bytes, tmp_path: Path) -> None:
    with (
        answering(answer) as (url, _),
        (tmp_path / "file").open("wb") as file,
        pytest.raises(UnavailableError, match="the connection to http"),
    ):
        HttpClient(url).download("/", file)


def test_a_refusal_without_json_is_told_as_it_is() -> None:
    answer = b"HTTP/1.1 502 Bad\r\n\r\n<p>bad gateway</p>"
    with answering(answer) as (url, _), pytest.raises(SignalboxError, match="HTTP 502: <p>bad gateway</p>"):
        HttpClient(url).get("/")


@pytest.mark.parametrize(
    "use",
    [
        lambda client: client.get("/"),
        lambda client: client.post("/", {}),
        lambda client: list(client.post_stream("/", {})),
    ],
)
def test_a_redirect_is_not_followed(use: Callable[[HttpClient], object]) -> None:
    answer = b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
    with answering(answer) as (url, _), pytest.raises(InternalError, match="HTTP 302"):
        use(HttpClient(url))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_variables_and_files_of_the_user_redirect_nothing(
    host: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No proxy gets the request, and no password of .netrc or of the URL replaces the key."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    (tmp_path / "netrc").write_text(f"machine {host} login other password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with answering(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}") as (url, heads):
        port = url.rpartition(":")[2]
        assert HttpClient(f"http://me:secret@{host}:{port}/a?b#c", api_key="sb_key").get("/d") == {}
    head = b"".join(heads).lower()
    assert head.startswith(b"get /a/d http/1.1\r\n")
    assert head.count(b"authorization:") == 1 and b"authorization: bearer sb_key\r\n" in head


def test_without_httpx_a_command_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['httpx'] = None\n"
        "from signalbox.cli.main import main, make_complete_parser\n"
        "make_complete_parser()\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    for command in (("chat",), ("batch", "in", "--out", "out")):
        done = subprocess.run(
            [sys.executable, "-c", program, *command], capture_output=True, text=True, timeout=60, check=False
        )
        expected = f"signalbox: signalbox {command[0]} needs httpx: pip install 'signalbox[terminal]'\n"
        assert (done.returncode, done.stderr) == (1, expected)


def test_a_file_is_sent_as_a_form(url: str, tmp_path: Path) -> None:
    content = b"line\r\n" * (1 << 18)
    path = tmp_path / 'a"b\udcff.jsonl'
    path.write_bytes(content)
    with path.open("rb") as file:
        told = HttpClient(url).post_file("/form", {"purpose": "batch"}, file, path.name)
    assert told == {
        "purpose": "batch",
        "file": hashlib.sha256(content).hexdigest(),
        "filename": "a%22b?.jsonl",
    }
