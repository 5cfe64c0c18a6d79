"""The endpoints of models that classify, score or embed."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frontend_svc.api.http.call import read_body, trace_of
from frontend_svc.api.http.errors import JSON
from frontend_svc.api.openapi.reads import reads
from frontend_svc.api.pooling.call import run_requests
from frontend_svc.api.pooling.classify import ClassifyBody
from frontend_svc.api.pooling.cohere import EmbedBody
from frontend_svc.api.pooling.pairs import PairCall
from frontend_svc.api.pooling.raw import PoolingCallBody
from frontend_svc.api.pooling.rerank import RerankBody
from frontend_svc.api.pooling.score import ScoreBody
from frontend_svc.services import Services


class PoolingApi:
    """Each endpoint turns one body into requests, and their results into bytes."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.routes = [
            *(Route(path, self.rerank, methods=["POST"]) for path in ("/rerank", "/v1/rerank", "/v2/rerank")),
            *(Route(path, self.score, methods=["POST"]) for path in ("/score", "/v1/score")),
            Route("/classify", self.classify, methods=["POST"]),
            Route("/pooling", self.pool, methods=["POST"]),
            Route("/v2/embed", self.embed, methods=["POST"]),
        ]

    @reads(RerankBody, {"query": "What is a fox?", "documents": ["An animal.", "A car."]})
    async def rerank(self, request: Request) -> Response:
        """Serves POST /rerank."""
        with self._services.metrics.counting_refusals():
            body = await read_body(self._services, request, RerankBody)
        return await self._score(request, body, "rerank-")

    @reads(ScoreBody, {"text_1": "What is a fox?", "text_2": ["An animal.", "A car."]})
    async def score(self, request: Request) -> Response:
        """Serves POST /score."""
        with self._services.metrics.counting_refusals():
            body = await read_body(self._services, request, ScoreBody)
        return await self._score(request, body, "score-")

    @reads(ClassifyBody, {"input": ["I am glad.", "I am sad."]})
    async def classify(self, request: Request) -> Response:
        """Serves POST /classify."""
        services = self._services
        with services.metrics.counting_refusals():
            body = await read_body(services, request, ClassifyBody)
            model = services.processor.model_of(body.model or "")
        results = await run_requests(services, request, body.read(trace_of(request)), "input")
        return Response(body.render(results, model, services.head), media_type=JSON)

    @reads(PoolingCallBody, {"input": "the quick brown fox"})
    async def pool(self, request: Request) -> Response:
        """Serves POST /pooling."""
        services = self._services
        with services.metrics.counting_refusals():
            body = await read_body(services, request, PoolingCallBody)
            model = services.processor.model_of(body.model or "")
            requests = body.read(model, trace_of(request))
        results = await run_requests(services, request, requests, "input")
        return Response(body.render(requests, results, model), media_type=JSON)

    @reads(EmbedBody, {"texts": ["the quick brown fox"]})
    async def embed(self, request: Request) -> Response:
        """Serves POST /v2/embed."""
        services = self._services
        with services.metrics.counting_refusals():
            body = await read_body(services, request, EmbedBody)
            requests = body.read(trace_of(request))
        return Response(
            body.render(await run_requests(services, request, requests, "texts")), media_type=JSON
        )

    async def _score(self, request: Request, body: RerankBody | ScoreBody, prefix: str) -> Response:
        services = self._services
        with services.metrics.counting_refusals():
            model = services.processor.model_of(body.model or "")
            pairs = body.pairs()
        scores, results = await PairCall(services, request, body, body.options, prefix).score(pairs)
        return Response(body.render(scores, results, model), media_type=JSON)
