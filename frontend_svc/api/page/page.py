"""The page at /, playground and board, and the one at /docs. Their files are read once, and come with headers that let
nothing else in."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from frontend_svc.api.http.half_close import say_events
from frontend_svc.api.page.board_stream import BoardStream
from signalbox.errors import RequestNotFoundError

WEB = Path(__file__).parent / "web"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
"""No inline script or style, no other host, no frame around us."""
EVENT_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no", "x-content-type-options": "nosniff"}


class WebPage:
    """Routes of the page, and the events of its board. Nothing here changes anything."""

    def __init__(self, board: BoardStream) -> None:
        self._board = board
        self._files = {
            path.name: (path.read_bytes(), MEDIA_TYPES[path.suffix])
            for path in WEB.iterdir()
            if path.suffix in MEDIA_TYPES
        }
        self.routes = [
            Route("/", self.index, methods=["GET"]),
            Route("/docs", self.docs, methods=["GET"]),
            Route("/web/{name}", self.file, methods=["GET"], include_in_schema=False),
            Route("/board/events", self.events, methods=["GET"]),
        ]

    async def index(self, request: Request) -> Response:
        """Serves GET /: the page."""
        return self._answer("index.html")

    async def docs(self, request: Request) -> Response:
        """A page that shows the description of the API."""
        return self._answer("docs.html")

    async def file(self, request: Request) -> Response:
        """GET /web/NAME: what the page is made of."""
        name = request.path_params["name"]
        if name not in self._files:
            raise RequestNotFoundError(f"there is no {request.url.path}")
        return self._answer(name)

    async def events(self, request: Request) -> Response:
        """GET /board/events: snapshots as server-sent events."""
        self._board.check_room()
        say_events(request.scope)
        return StreamingResponse(self._board.events(), headers=EVENT_HEADERS, media_type="text/event-stream")

    def _answer(self, name: str) -> Response:
        content, media_type = self._files[name]
        return Response(content, headers=HEADERS, media_type=media_type)
