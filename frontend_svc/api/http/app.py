"""The application over HTTP: the OpenAI-compatible API, and what operators ask of the process."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frontend_svc.api.anthropic.endpoints import AnthropicApi
from frontend_svc.api.batches.endpoints import BatchesApi, NoFiles
from frontend_svc.api.http.answer_headers import EXPOSED, AnswerHeaders
from frontend_svc.api.http.auth import HttpAuth
from frontend_svc.api.http.errors import JSON, answer_bug, answer_error, answer_http_error
from frontend_svc.api.http.local_callers import LocalCallers
from frontend_svc.api.openai.endpoints import OpenAIApi
from frontend_svc.api.openapi.endpoint import OpenApi
from frontend_svc.api.page.page import WebPage
from frontend_svc.api.pooling.endpoints import PoolingApi
from frontend_svc.config import FrontendSettings
from frontend_svc.metrics import Metrics
from frontend_svc.services import Services
from signalbox import __version__
from signalbox.errors import SignalboxError
from signalbox.links.addresses import is_loopback


class HttpApi:
    """All routes. Those for GET answer HEAD too."""

    def __init__(
        self, services: Services, *, is_ready: Callable[[], bool], page: WebPage | None = None
    ) -> None:
        settings, access = services.settings, services.access
        self._metrics = services.metrics
        self._metrics_elsewhere = _metrics_elsewhere(settings)
        self._is_ready = is_ready
        self._name = settings.name
        self._table = services.table
        openai = OpenAIApi(services)
        self.batches = BatchesApi(services, openai.endpoints) if settings.files_dir is not None else None
        """Files and batches; None: there are none here."""
        auth = Middleware(HttpAuth, access, self._metrics, metrics_need_key=settings.metrics_need_key)
        self.app = Starlette(
            routes=[
                *openai.routes,
                *(self.batches or NoFiles()).routes,
                *AnthropicApi(services).routes,
                *OpenApi(has_keys=access.has_keys).routes,
                *PoolingApi(services).routes,
                Route("/health", self.health, methods=["GET"]),
                Route("/live", self.health, methods=["GET"]),
                Route("/ping", self.health, methods=["GET", "POST"]),
                Route("/load", self.load, methods=["GET"]),
                Route("/ready", self.ready, methods=["GET"]),
                Route("/metrics", self.render_metrics, methods=["GET"]),
                Route("/version", self.version, methods=["GET"]),
                *(page.routes if page is not None else (Route("/", self.health, methods=["GET"]),)),
            ],
            middleware=[
                *_cross_origin(settings.allowed_origins),
                Middleware(AnswerHeaders, access),
                *([auth] if access.has_keys else _local_callers(settings, self._metrics)),
            ],
            exception_handlers={
                SignalboxError: answer_error,
                HTTPException: answer_http_error,
                Exception: answer_bug,
            },
        )

    async def health(self, request: Request) -> Response:
        """GET /health and /live, and / where there is no page: the process is alive. Claude Code asks for HEAD of /."""
        return Response(b'{"status":"ok"}', media_type=JSON)

    async def load(self, request: Request) -> Response:
        """GET /load: requests that are open, in vLLM's shape."""
        return Response(orjson.dumps({"server_load": len(self._table)}), media_type=JSON)

    async def ready(self, request: Request) -> Response:
        """GET /ready: a request would be served. The name tells apart frontends that share a port."""
        if self._is_ready():
            return Response(orjson.dumps({"status": "ready", "name": self._name}), media_type=JSON)
        return Response(b'{"status":"not ready"}', HTTPStatus.SERVICE_UNAVAILABLE, media_type=JSON)

    async def render_metrics(self, request: Request) -> Response:
        """Serves GET /metrics, where no port of its own does."""
        if self._metrics_elsewhere:
            raise HTTPException(HTTPStatus.NOT_FOUND, self._metrics_elsewhere)
        page, content_type = self._metrics.render(request.headers.get("accept", ""))
        return Response(page, headers={"content-type": content_type})

    async def version(self, request: Request) -> Response:
        """Serves GET /version."""
        return Response(orjson.dumps({"version": __version__}), media_type=JSON)


def _metrics_elsewhere(settings: FrontendSettings) -> str:
    """Why this port serves no metrics; empty: it does. Where processes share a port, each call would meet another one,
    and a counter would seem to jump."""
    if settings.metrics:
        return "metrics have a port of their own here (--metrics)"
    if settings.reuse_port:
        return "several processes share this port: each serves its own metrics where --metrics says"
    return ""


def _local_callers(settings: FrontendSettings, metrics: Metrics) -> list[Middleware]:
    """Where there are no keys, and only this machine can call."""
    if not is_loopback(settings.http):
        return []
    hosts, origins = _names_in(settings.allowed_hosts), _names_in(settings.allowed_origins)
    return [Middleware(LocalCallers, metrics, hosts, origins)]


def _names_in(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _cross_origin(origins: str) -> list[Middleware]:
    """Lets pages of these origins call. It stands ahead of keys: a browser's first question carries none."""
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=_names_in(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=EXPOSED,
        )
    ]
