"""A stub of the part of the Kubernetes API that leases need: objects in memory, compare-and-swap of resourceVersion.

It checks what the real one checks (token, what roles allow, version, fields of a Lease) and can be told to fail.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PREFIX = "/apis/coordination.k8s.io/v1/namespaces/"
TOKEN = "a token"
VERBS = {"GET": "get", "PUT": "update", "POST": "create"}


class ApiServer:
    """The leases of all namespaces."""

    def __init__(self, rules: list[dict[str, Any]] | None = None) -> None:
        """rules: of the account's Role; None: it may do all."""
        self.url = ""
        self.rules = rules
        self.leases: dict[str, dict[str, Any]] = {}
        """By path."""
        self.fails_with: int | None = None
        """Status that every call is answered with; None: it works."""
        self.loses_answers = False
        """Writes are made and answered with an error."""
        self._version = 0
        self._lock = threading.Lock()

    def answer(self, method: str, path: str, body: Any, authorization: str) -> tuple[int, dict[str, Any]]:
        """Status and body."""
        with self._lock:
            if self.fails_with is not None:
                return self.fails_with, {"kind": "Status", "message": "told to fail"}
            if authorization != f"Bearer {TOKEN}":
                return 401, {"kind": "Status", "message": "Unauthorized"}
            if self.rules is not None and not any(_allows(rule, method, path) for rule in self.rules):
                return 403, {"kind": "Status", "message": f"{VERBS.get(method)} {path} is forbidden"}
            if not path.startswith(PREFIX):
                return 404, {"kind": "Status", "message": "no such resource"}
            status, answer = self._answer(method, path, body)
            return (504, {"message": "lost"}) if self.loses_answers and method != "GET" else (status, answer)

    def touch(self, path: str) -> None:
        """Somebody annotates the object."""
        with self._lock:
            self._store(path, {**self.leases[path]})

    def _answer(self, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        if method == "GET":
            found = self.leases.get(path)
            return (200, found) if found else (404, {"kind": "Status", "message": "not found"})
        if error := _complaint(body):
            return 422, {"kind": "Status", "message": error}
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.leases:
                return 409, {"kind": "Status", "message": "already exists"}
            return 201, self._store(path, body)
        if path not in self.leases:
            return 404, {"kind": "Status", "message": "not found"}
        if body["metadata"]["resourceVersion"] != self.leases[path]["metadata"]["resourceVersion"]:
            return 409, {"kind": "Status", "message": "the object has been modified"}
        return 200, self._store(path, body)

    def _store(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        body["metadata"] = {**body["metadata"], "resourceVersion": str(self._version)}
        self.leases[path] = body
        return body


def _allows(rule: dict[str, Any], method: str, path: str) -> bool:
    """A rule of a Role lets a call through: /apis/GROUP/v1/namespaces/NAMESPACE/RESOURCE[/NAME]."""
    parts = path.split("/")
    group, resource, name = parts[2], parts[6], parts[7] if len(parts) > 7 else ""
    named = rule.get("resourceNames")
    is_of = (
        group in rule["apiGroups"] and resource in rule["resources"] and VERBS.get(method) in rule["verbs"]
    )
    return is_of and (not named or name in named)


def _complaint(body: Any) -> str:
    spec = body.get("spec", {})
    if (body.get("apiVersion"), body.get("kind")) != ("coordination.k8s.io/v1", "Lease"):
        return "not a Lease"
    if not isinstance(spec.get("leaseDurationSeconds"), int) or spec["leaseDurationSeconds"] < 1:
        return "spec.leaseDurationSeconds: must be greater than 0"
    if not isinstance(spec.get("leaseTransitions"), int) or spec["leaseTransitions"] < 0:
        return "spec.leaseTransitions: must be greater than or equal to 0"
    return ""


@contextmanager
def api_server(
    certificate: Path | None = None,
    key: Path | None = None,
    address: tuple[str, int] = ("127.0.0.1", 0),
    rules: list[dict[str, Any]] | None = None,
) -> Iterator[ApiServer]:
    """A server at an address, without one at a port of its own; with TLS when there is a certificate."""
    server = ApiServer(rules)

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = json.loads(raw) if raw else None
            status, answer = server.answer(self.command, self.path, body, self.headers["Authorization"])
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = _handle  # noqa: N815

        def log_message(self, *arguments: object) -> None:
            pass

    http = ThreadingHTTPServer(address, Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        http.socket = context.wrap_socket(http.socket, server_side=True)
    server.url = f"{'https' if certificate else 'http'}://{address[0]}:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
