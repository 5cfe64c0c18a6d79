"""A Hugging Face hub on this machine: what huggingface_hub asks for, without Xet."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" * 6 + "c0de"
REVISIONS = {"main": COMMIT, "v1": COMMIT, COMMIT: COMMIT}
TOKEN = "hf_of_the_tests"
API = re.compile(r"/api/models/(\w+/[\w.-]+)/(revision|tree)/([\w.-]+)(/.*)?")
FILE = re.compile(r"/(\w+/[\w.-]+)/resolve/([\w.-]+)/(.+)")
LARGE = (".safetensors", "tokenizer.json")


class Hub(ThreadingHTTPServer):
    """Serves one repository, `acme/tiny`; `acme/gated` asks for a token, and there is no other one."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = files
        self.asked: list[tuple[str, str]] = []
        """Method and path of each call."""
        self.num_bytes_before_break: int | None = None
        """A large file breaks off after so many bytes, once. None: it does not."""
        self.damages: set[str] = set()
        """Files whose content is not what their hashes say."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def fetched(self) -> list[str]:
        """Names of the files that were asked for, without those whose heads only."""
        return [
            match[3] for method, path in self.asked if method == "GET" and (match := FILE.fullmatch(path))
        ]


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append((self.command, path))
        match = API.fullmatch(path) or FILE.fullmatch(path)
        if match is None:
            self._refuse(404, "EntryNotFound")
        elif match[1] == "acme/gated" and self.headers.get("authorization") != f"Bearer {TOKEN}":
            self._refuse(403, "GatedRepo")
        elif match[1] not in ("acme/tiny", "acme/gated"):
            self._refuse(404, "RepoNotFound")
        elif path.startswith("/api/"):
            self._answer_api(match[1], match[2], match[3])
        else:
            self._answer_file(match[3])

    def _answer_api(self, repository: str, what: str, revision: str) -> None:
        if revision not in REVISIONS:
            self._refuse(404, "RevisionNotFound")
        elif what == "revision":
            siblings = [{"rfilename": name} for name in self.server.files]
            self._send(200, _json({"id": repository, "sha": COMMIT, "siblings": siblings}))
        else:
            self._send(200, _json([_entry(name, data) for name, data in self.server.files.items()]))

    def _answer_file(self, name: str) -> None:
        data = self.server.files.get(name)
        if data is None:
            self._refuse(404, "EntryNotFound")
            return
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{_hash(name, data)}"', "Accept-Ranges": "bytes"}
        if name in self.server.damages:
            data = data[::-1]
        start = int((self.headers.get("range") or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self._send(206 if start else 200, data[start:], headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        limit = self.server.num_bytes_before_break
        if limit is not None and len(body) > limit:
            self.server.num_bytes_before_break = None
            self.wfile.write(body[:limit])
            self.close_connection = True
        else:
            self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, b"{}", {"X-Error-Code": code})

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def _json(document: object) -> bytes:
    return json.dumps(document).encode()


def _entry(name: str, data: bytes) -> dict[str, object]:
    entry: dict[str, object] = {"type": "file", "path": name, "size": len(data), "oid": _git_hash(data)}
    if name.endswith(LARGE):
        entry["lfs"] = {"oid": _hash(name, data), "size": len(data), "pointerSize": 130}
    return entry


def _hash(name: str, data: bytes) -> str:
    return hashlib.sha256(data).hexdigest() if name.endswith(LARGE) else _git_hash(data)


def _git_hash(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Hub]:
    """A hub that runs while the block does."""
    with Hub(files) as hub:
        Thread(target=hub.serve_forever, daemon=True).start()
        yield hub
        hub.shutdown()
