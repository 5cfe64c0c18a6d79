"""Lets nobody else's web page use a server that only this machine can reach and that asks for no key.

A browser on this machine is asked by any page to send requests here: as they come (cross-site requests), or under a
name of the page's own that leads to 127.0.0.1 (DNS rebinding), whose answers the page can read.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from frontend_svc.api.http.errors import answer_error
from frontend_svc.metrics import Metrics
from signalbox.errors import PermissionDeniedError
from signalbox.links.addresses import is_loopback

HARMLESS = {"GET", "HEAD", "OPTIONS"}
"""Methods that change nothing; who may read their answers is the browser's to say, by the names that follow."""
ANY = "*"


class LocalCallers:
    """ASGI middleware: the Host of a request has to be a name of this machine, and so has the Origin of one that does
    something."""

    def __init__(
        self, app: ASGIApp, metrics: Metrics, hosts: Collection[str], origins: Collection[str]
    ) -> None:
        """hosts: further names of this machine, without ports. origins: of pages that may call."""
        self._app = app
        self._metrics = metrics
        self._hosts, self._origins = hosts, origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a call on; it is an ASGI application."""
        request = Request(scope)
        try:
            with self._metrics.counting_refusals():
                self._check(request)
        except PermissionDeniedError as error:
            await (await answer_error(request, error))(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, request: Request) -> None:
        host, origin = request.headers.get("host"), request.headers.get("origin")
        if host is not None and not self._is_ours(f"//{host}"):
            raise PermissionDeniedError(
                f"the Host {host!r} is no name of this machine; say it in allowed_hosts, or use keys",
                field="Host",
            )
        if origin is None or request.method in HARMLESS or ANY in self._origins or origin in self._origins:
            return
        if not self._is_ours(origin):
            raise PermissionDeniedError(
                f"pages of {origin!r} may not call; say it in allowed_origins, or use keys", field="Origin"
            )

    def _is_ours(self, url: str) -> bool:
        try:
            name = urlsplit(url).hostname or ""
        except ValueError:  # brackets without an address in them
            return False
        return ANY in self._hosts or name in self._hosts or is_loopback(f"[{name}]:0")
