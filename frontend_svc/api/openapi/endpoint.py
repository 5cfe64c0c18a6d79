"""GET /openapi.json."""

from __future__ import annotations

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frontend_svc.api.http.errors import JSON
from frontend_svc.api.openapi.document import make_document


class OpenApi:
    """Makes the document when it is first asked for."""

    def __init__(self, *, has_keys: bool) -> None:
        """`has_keys`: callers need one."""
        self._has_keys = has_keys
        self._document: bytes | None = None
        self.routes = [Route("/openapi.json", self.get, methods=["GET"])]

    async def get(self, request: Request) -> Response:
        """This description of the API."""
        if self._document is None:
            document = make_document(request.app.routes, has_keys=self._has_keys)
            self._document = orjson.dumps(document)
        return Response(self._document, media_type=JSON)
