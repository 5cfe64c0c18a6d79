"""Asks callers over HTTP for their key before anything else happens."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from frontend_svc.access.access_control import FIELD, AccessControl, Caller
from frontend_svc.api.http.errors import answer_error
from frontend_svc.metrics import Metrics
from signalbox.errors import SignalboxError, code_of

METRICS = "/metrics"
OPEN = {"/", "/docs", "/openapi.json", "/health", "/live", "/ping", "/ready", "/version", METRICS}
"""Paths that need no key: they tell nothing of anybody's requests; `/`, `/docs` and what they are made of are pages,
not their data."""
OPEN_PREFIX = "/web/"
ADMIN_PREFIX = "/board/"
"""Shows the requests of all tenants."""
API_KEY = "x-api-key"
"""Where Anthropic's clients put the key."""


class HttpAuth:
    """ASGI middleware. What is not open needs a key, paths that do not exist included."""

    def __init__(
        self, app: ASGIApp, access: AccessControl, metrics: Metrics, *, metrics_need_key: bool
    ) -> None:
        self._app = app
        self._access = access
        self._metrics = metrics
        self._open = OPEN - {METRICS} if metrics_need_key else OPEN
        self._admin = (ADMIN_PREFIX, METRICS) if metrics_need_key else (ADMIN_PREFIX,)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a call on once its caller is known; it is an ASGI application."""
        path: str = scope["path"]
        if path in self._open or path.startswith(OPEN_PREFIX):
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        try:
            with self._metrics.counting_refusals():
                self._check(request, path)
        except SignalboxError as error:
            await (await answer_error(request, error))(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, request: Request, path: str) -> Caller:
        keys = [f"Bearer {key}" for key in request.headers.getlist(API_KEY)]
        client = request.client.host if request.client else ""
        caller = self._access.identify(request.headers.getlist(FIELD) or keys, path, client)
        if path.startswith(self._admin):
            try:
                caller.require_admin(path)
            except SignalboxError as error:
                self._access.audit.refused(code_of(error), caller.key_id, path, client)
                raise
            self._access.audit.admin(caller.key_id, path, client)
        return caller
