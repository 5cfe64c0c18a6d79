"""Headers of each answer: the name of the request, and what its key may still take."""

from __future__ import annotations

from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from frontend_svc.access.access_control import AccessControl
from signalbox.errors import InternalError

REQUEST_ID = "x-request-id"
MAX_ID_CHARS = 128
_ANSWER_NAME = "signalbox.answer_name"
EXPOSED = [
    REQUEST_ID,
    "retry-after",
    *(
        f"x-ratelimit-{what}-{of}"
        for of in ("requests", "tokens")
        for what in ("limit", "remaining", "reset")
    ),
]
"""Headers that a page of another origin may read."""


def name_answer(scope: Scope, request_id: str) -> None:
    """Has the answer tell this id: that of the request which was opened."""
    scope.setdefault("state", {})[_ANSWER_NAME] = request_id


def answer_name(scope: Scope) -> str:
    """The id that the answer tells; a new one where no request was opened."""
    return str(scope.get("state", {}).get(_ANSWER_NAME) or f"req_{uuid4().hex}")


class AnswerHeaders:
    """ASGI middleware. An answer has the id of its request, else the one that the client sent, else a new one."""

    def __init__(self, app: ASGIApp, access: AccessControl) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add(scope, MutableHeaders(scope=message))
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _add(self, scope: Scope, headers: MutableHeaders) -> None:
        name = scope.get("state", {}).get(_ANSWER_NAME) or _sent_id(scope) or f"req_{uuid4().hex}"
        headers[REQUEST_ID] = name.encode("ascii", "backslashreplace").decode()
        for header, value in self._limits():
            headers[f"x-ratelimit-{header}"] = value

    def _limits(self) -> list[tuple[str, str]]:
        if not self._access.has_keys:
            return []
        try:
            quota = self._access.caller.quota
        except InternalError:  # nobody was asked for a key
            return []
        return [] if quota is None else quota.tell()


def _sent_id(scope: Scope) -> str:
    """The client's own; empty when there is none that may be told again."""
    name = Headers(scope=scope).get(REQUEST_ID, "")
    return name if len(name) <= MAX_ID_CHARS and name.isascii() and name.isprintable() else ""
