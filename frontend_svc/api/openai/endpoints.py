"""The endpoints of the OpenAI-compatible API, and vLLM's two for tokens."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frontend_svc.api.http.call import HttpContext, answer, trace_of, watching
from frontend_svc.api.http.errors import JSON
from frontend_svc.api.openai.chat_body import ChatBody
from frontend_svc.api.openai.chat_format import ChatFormat
from frontend_svc.api.openai.completion_body import CompletionBody
from frontend_svc.api.openai.completion_format import CompletionFormat
from frontend_svc.api.openai.embeddings import EmbeddingsBody
from frontend_svc.api.openai.responses_body import ResponsesBody
from frontend_svc.api.openai.responses_format import ResponsesFormat
from frontend_svc.api.openai.tokenize import DetokenizeBody, TokenizeBody
from frontend_svc.models import Model
from signalbox.errors import RequestNotFoundError


class OpenAIApi:
    """Each endpoint turns one body into sessions, and the sessions' deltas into bytes."""

    def __init__(self, face: HttpContext) -> None:
        self._face = face
        self._created = int(time.time())
        self.routes = [
            Route("/v1/completions", self.complete, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/responses", self.respond, methods=["POST"]),
            Route("/v1/embeddings", self.embed, methods=["POST"]),
            Route("/v1/models", self.list_models, methods=["GET"]),
            Route("/v1/models/{model:path}", self.get_model, methods=["GET"]),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
        ]

    async def complete(self, request: Request) -> Response:
        """POST /v1/completions."""
        face = self._face
        with face.metrics.counting_refusals():
            body = await face.read(request, CompletionBody)
            prompts = body.read(trace_of(request))
            if body.echo:
                face.processor.require_tokenizer("echo")
            choices = await face.open(request, prompts, body.num_sampled)
        make_form = partial(CompletionFormat, body, choices, face.processor.tokenizer)
        return await answer(request, choices, make_form, stream=bool(body.stream))

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        face = self._face
        with face.metrics.counting_refusals():
            body = await face.read(request, ChatBody)
            asked = body.read(face.processor.tokenizer, trace_of(request))
            choices = await face.open(request, [asked], body.num_choices)
        make_form = partial(ChatFormat, body, choices, face.processor.tokenizer)
        return await answer(request, choices, make_form, stream=bool(body.stream))

    async def respond(self, request: Request) -> Response:
        """POST /v1/responses."""
        face = self._face
        with face.metrics.counting_refusals():
            body = await face.read(request, ResponsesBody)
            choices = await face.open(request, [body.read(face.processor.tokenizer, trace_of(request))])
        return await answer(
            request, choices, partial(ResponsesFormat, body, choices), stream=bool(body.stream)
        )

    async def embed(self, request: Request) -> Response:
        """POST /v1/embeddings."""
        face = self._face
        with face.metrics.counting_refusals():
            body = await face.read(request, EmbeddingsBody)
            choices = await face.open(request, body.read(trace_of(request)))
        async with watching(request.receive, choices):
            return Response(body.render(choices, await choices.collect()), media_type=JSON)

    async def list_models(self, request: Request) -> Response:
        """GET /v1/models."""
        models = [self._make_model(model) for model in self._face.directory.models]
        return Response(orjson.dumps({"object": "list", "data": models}), media_type=JSON)

    async def get_model(self, request: Request) -> Response:
        """GET /v1/models/{model}."""
        name = request.path_params["model"]
        for model in self._face.directory.models:
            if model.name == name:
                return Response(orjson.dumps(self._make_model(model)), media_type=JSON)
        raise RequestNotFoundError(f"the model {name!r} is not served now", field="model")

    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize."""
        face = self._face
        with face.metrics.counting_refusals():
            body = await face.read(request, TokenizeBody)
            model = face.directory.resolve(body.model or "")
            return Response(
                await body.answer(face.processor.require_tokenizer("prompt"), model), media_type=JSON
            )

    async def detokenize(self, request: Request) -> Response:
        """POST /detokenize."""
        face = self._face
        with face.metrics.counting_refusals():
            body = await face.read(request, DetokenizeBody)
            model = face.directory.resolve(body.model or "")
            return Response(body.answer(face.processor.require_tokenizer("tokens"), model), media_type=JSON)

    def _make_model(self, model: Model) -> dict[str, Any]:
        return {
            "id": model.name,
            "object": "model",
            "created": self._created,
            "owned_by": "signalbox",
            "max_model_len": model.max_tokens,
        }
