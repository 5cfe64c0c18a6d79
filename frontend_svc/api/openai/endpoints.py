"""The endpoints of the OpenAI-compatible API, and vLLM's two for tokens."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frontend_svc.api.anthropic.models import VERSION_HEADER, make_model, make_page
from frontend_svc.api.http.call import answer, open_call, read_body, trace_of, watching
from frontend_svc.api.http.errors import JSON
from frontend_svc.api.openai.chat_body import ChatBody
from frontend_svc.api.openai.chat_renderer import ChatRenderer
from frontend_svc.api.openai.completion_body import CompletionBody
from frontend_svc.api.openai.completion_renderer import CompletionRenderer
from frontend_svc.api.openai.embeddings import EmbeddingsBody
from frontend_svc.api.openai.tokenize import DetokenizeBody, TokenizeBody
from frontend_svc.api.openapi.reads import reads
from frontend_svc.api.responses.body import ResponsesBody
from frontend_svc.api.responses.renderer import ResponsesRenderer
from frontend_svc.models import Model
from frontend_svc.requests.token_calls import TokenCalls
from frontend_svc.services import Services
from signalbox.errors import UnknownModelError


class OpenAIApi:
    """Each endpoint turns one body into sessions, and the sessions' deltas into bytes."""

    def __init__(self, services: Services) -> None:
        self._services = services
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

    @property
    def endpoints(self) -> dict[str, Callable[[Request], Awaitable[Response]]]:
        """What answers a POST, by path."""
        return {route.path: route.endpoint for route in self.routes if "POST" in (route.methods or ())}

    @reads(CompletionBody, {"prompt": "def quicksort(", "max_tokens": 16})
    async def complete(self, request: Request) -> Response:
        """Serves POST /v1/completions."""
        services = self._services
        with services.metrics.counting_refusals():
            body = await read_body(services, request, CompletionBody)
            prompts = body.read(trace_of(request))
            if body.echo:
                services.processor.require_tokenizer("echo")
            choices = await open_call(services, request, prompts, body.num_sampled)
        make_renderer = partial(CompletionRenderer, body, choices, services.processor.tokenizer)
        return await answer(request, choices, make_renderer, stream=bool(body.stream))

    @reads(ChatBody, {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 16})
    async def chat(self, request: Request) -> Response:
        """Serves POST /v1/chat/completions."""
        services = self._services
        with services.metrics.counting_refusals():
            body = await read_body(services, request, ChatBody)
            prompt = await body.read(services.prompts, services.language, trace_of(request))
            choices = await open_call(services, request, [prompt], body.num_choices)
        assert isinstance(prompt.prompt, str)
        make_renderer = partial(
            ChatRenderer,
            body,
            choices,
            services.processor.tokenizer,
            prompt.prompt,
            services.settings.reasoning_fields,
        )
        return await answer(request, choices, make_renderer, stream=bool(body.stream))

    @reads(ResponsesBody, {"input": "Hello!", "max_output_tokens": 16})
    async def respond(self, request: Request) -> Response:
        """Serves POST /v1/responses."""
        services = self._services
        with services.metrics.counting_refusals():
            body = await read_body(services, request, ResponsesBody)
            prompt = await body.read(services.prompts, services.language, trace_of(request))
            choices = await open_call(services, request, [prompt])
        return await answer(
            request,
            choices,
            partial(ResponsesRenderer, body, choices),
            stream=bool(body.stream),
            warnings=body.warnings,
        )

    @reads(EmbeddingsBody, {"input": ["Hello!"]})
    async def embed(self, request: Request) -> Response:
        """Serves POST /v1/embeddings."""
        services = self._services
        with services.metrics.counting_refusals():
            body = await read_body(services, request, EmbeddingsBody)
            choices = await open_call(services, request, body.read(trace_of(request)))
        async with watching(request.receive, choices):
            return Response(body.render(choices, await choices.collect()), media_type=JSON)

    async def list_models(self, request: Request) -> Response:
        """Serves GET /v1/models."""
        served = self._services.directory.models
        if VERSION_HEADER in request.headers:
            page = make_page(served, self._created, request.query_params)
            return Response(orjson.dumps(page), media_type=JSON)
        models = [self._make_model(model) for model in served]
        return Response(orjson.dumps({"object": "list", "data": models}), media_type=JSON)

    async def get_model(self, request: Request) -> Response:
        """Serves GET /v1/models/{model}."""
        name = request.path_params["model"]
        for model in self._services.directory.models:
            if model.name == name:
                is_claude = VERSION_HEADER in request.headers
                told = make_model(model, self._created) if is_claude else self._make_model(model)
                return Response(orjson.dumps(told), media_type=JSON)
        raise UnknownModelError(f"the model {name!r} is not served now", field="model")

    @reads(TokenizeBody, {"prompt": "Hello!"}, runs=False)
    async def tokenize(self, request: Request) -> Response:
        """Serves POST /tokenize."""
        services = self._services
        with services.metrics.counting_refusals():
            body = await read_body(services, request, TokenizeBody)
            model = services.processor.model_of(body.model or "")
            tokenizer = services.processor.require_tokenizer("prompt")
            calls = TokenCalls(tokenizer, model, services.processor.limits)
            async with services.access.admitted():
                told = await body.answer(tokenizer, services.prompts, calls)
            return Response(told, media_type=JSON)

    @reads(DetokenizeBody, {"tokens": [5, 6]}, runs=False)
    async def detokenize(self, request: Request) -> Response:
        """Serves POST /detokenize."""
        services = self._services
        with services.metrics.counting_refusals():
            body = await read_body(services, request, DetokenizeBody)
            model = services.processor.model_of(body.model or "")
            tokenizer = services.processor.require_tokenizer("tokens")
            calls = TokenCalls(tokenizer, model, services.processor.limits)
            async with services.access.admitted():
                told = await body.answer(calls)
            return Response(told, media_type=JSON)

    def _make_model(self, model: Model) -> dict[str, Any]:
        return {
            "id": model.name,
            "object": "model",
            "created": self._created,
            "owned_by": "signalbox",
            "root": model.name,
            "parent": None,
            "permission": [],
            "max_model_len": model.max_tokens,
            "tasks": [task.name.lower() for task in model.tasks],
            "sampling_defaults": self._services.processor.defaults.as_json(),
            "chat": {
                "reasoning_parser": self._services.language.reasoning or None,
                "tool_parser": self._services.language.tools or None,
                "thinking": self._services.prompts.switches,
            },
        }
