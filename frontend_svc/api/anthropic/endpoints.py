"""The endpoints of the Messages API."""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frontend_svc.api.anthropic.body import CountBody, MessagesBody
from frontend_svc.api.anthropic.edited_context import edit_context
from frontend_svc.api.anthropic.errors import PATHS
from frontend_svc.api.anthropic.renderer import MessagesRenderer
from frontend_svc.api.http.call import answer, open_call, read_body, trace_of, warning_headers
from frontend_svc.api.http.errors import JSON
from frontend_svc.api.openai.chat_prompt import render_chat
from frontend_svc.api.openapi.reads import reads
from frontend_svc.services import Services


class AnthropicApi:
    """Each endpoint turns one body into a session, and its deltas into bytes."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.routes = [
            Route(PATHS, self.create, methods=["POST"]),
            Route(f"{PATHS}/count_tokens", self.count_tokens, methods=["POST"]),
        ]

    @reads(MessagesBody, {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 16})
    async def create(self, request: Request) -> Response:
        """Serves POST /v1/messages."""
        services = self._services
        with services.metrics.counting_refusals():
            body = await read_body(services, request, MessagesBody)
            tokenizer = services.processor.require_tokenizer("messages")
            context = await edit_context(body, services.prompts, tokenizer)
            prompt = await body.read(services.prompts, services.language, trace_of(request), context.messages)
            choices = await open_call(services, request, [prompt])
        make_renderer = partial(MessagesRenderer, body, choices, context.applied)
        return await answer(request, choices, make_renderer, stream=bool(body.stream), warnings=body.warnings)

    @reads(CountBody, {"messages": [{"role": "user", "content": "Hello!"}]}, runs=False)
    async def count_tokens(self, request: Request) -> Response:
        """Serves POST /v1/messages/count_tokens."""
        services = self._services
        with services.metrics.counting_refusals():
            body = await read_body(services, request, CountBody)
            services.processor.model_of(body.model or "")
            tokenizer = services.processor.require_tokenizer("messages")
            async with services.access.admitted():
                context = await edit_context(body, services.prompts, tokenizer)
                conversation = body.conversation(context.messages)
                prompt = await render_chat(conversation, body.toolbox, services.prompts)
                count = len(await tokenizer.encoding_of(prompt, add_special_tokens=False))
        told: dict[str, Any] = {"input_tokens": count}
        if body.context_management is not None:
            told["context_management"] = {"original_input_tokens": context.num_original_tokens or count}
        answer = orjson.dumps(told)
        return Response(answer, headers=warning_headers(body.warnings), media_type=JSON)
