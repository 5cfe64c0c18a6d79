"""The public face over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator

from frontend_svc.api.grpc.call import Context, accept
from frontend_svc.api.grpc.request import read_embed, read_generate, refuse_unknown_fields
from frontend_svc.api.grpc.response import make_accepted, make_embeddings, make_responses
from frontend_svc.requests.choices import open_choices
from frontend_svc.requests.request import ClientRequest
from frontend_svc.requests.token_calls import TokenCalls
from frontend_svc.services import Services
from signalbox.errors import InvalidRequestError
from signalbox.links import rpc
from signalbox.v1 import frontend_pb2 as frontend
from signalbox.v1.frontend_pb2_grpc import GenerationServiceServicer

SERVICE = "signalbox.v1.GenerationService"


class GenerationServicer(GenerationServiceServicer):
    """Turns calls into sessions and deltas into messages."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._processor, self._directory = services.processor, services.directory

    async def Generate(  # noqa: N802
        self, request: frontend.GenerateRequest, context: Context
    ) -> AsyncIterator[frontend.GenerateResponse]:
        """Streams the output of one request, all choices in one stream."""
        choices = await accept(self._services, lambda: read_generate(request, context), context)
        finished = None
        try:
            yield make_accepted(choices)
            while news := await choices.next_deltas():
                for index, delta in news:
                    for response in make_responses(index, delta):
                        yield response
                    finished = delta.finished
            await rpc.end_with(context, None if finished is None else finished.error)
        finally:
            choices.cancel()  # the client left, or its deadline passed

    async def Embed(  # noqa: N802
        self, request: frontend.EmbedRequest, context: Context
    ) -> frontend.EmbedResponse:
        """Answers with one vector per input."""

        async def embed() -> frontend.EmbedResponse:
            with self._services.metrics.counting_refusals():
                inputs = read_embed(request, context)
                self._check_count(inputs)
                choices = await open_choices(self._processor, inputs, 1)
            try:
                return make_embeddings(choices, await choices.collect())
            finally:
                choices.cancel()

        return await rpc.answer(context, embed)

    async def Tokenize(  # noqa: N802
        self, request: frontend.TokenizeRequest, context: Context
    ) -> frontend.TokenizeResponse:
        """Token ids of a text."""

        async def tokenize() -> frontend.TokenizeResponse:
            refuse_unknown_fields(request)
            calls = self._token_calls(request.model, "text")
            async with self._processor.access.admitted():
                special = not request.raw
                token_ids = await calls.tokenize(request.text, "text", add_special_tokens=special)
            return frontend.TokenizeResponse(token_ids=token_ids)

        return await rpc.answer(context, tokenize)

    async def Detokenize(  # noqa: N802
        self, request: frontend.DetokenizeRequest, context: Context
    ) -> frontend.DetokenizeResponse:
        """Answers with the text of token ids."""

        async def detokenize() -> frontend.DetokenizeResponse:
            refuse_unknown_fields(request)
            calls = self._token_calls(request.model, "token_ids")
            async with self._processor.access.admitted():
                text = await calls.detokenize(request.token_ids, "token_ids")
            return frontend.DetokenizeResponse(text=text)

        return await rpc.answer(context, detokenize)

    async def ListModels(  # noqa: N802
        self, request: frontend.ListModelsRequest, context: Context
    ) -> frontend.ListModelsResponse:
        """Models that can run now."""
        return frontend.ListModelsResponse(
            models=[
                frontend.ModelInfo(
                    id=model.name, max_model_len=model.max_tokens, num_workers=model.num_workers
                )
                for model in self._directory.models
            ]
        )

    def _token_calls(self, model: str, field: str) -> TokenCalls:
        """Raises UnsupportedError, which names `field`, without a tokenizer, and what `model_of` raises."""
        named = self._processor.model_of(model)
        return TokenCalls(self._processor.require_tokenizer(field), named, self._processor.limits)

    def _check_count(self, inputs: list[ClientRequest]) -> None:
        most = self._processor.limits.max_choices
        if len(inputs) > most:
            raise InvalidRequestError(f"inputs has {len(inputs)}, at most {most} are allowed", field="inputs")
