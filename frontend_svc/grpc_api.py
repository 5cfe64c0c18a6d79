"""The public face over gRPC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from frontend_svc.choices import Choices, open_choices
from frontend_svc.generate_input import Asked
from frontend_svc.grpc_request import Context, read_embed, read_generate, refuse_unknown_fields
from frontend_svc.grpc_response import make_accepted, make_embeddings, make_responses
from frontend_svc.intake import Intake
from frontend_svc.metrics import Metrics
from frontend_svc.models import ModelDirectory
from frontend_svc.validation import check_token_ids
from signalbox import rpc
from signalbox.errors import InternalError, InvalidRequestError, SignalboxError
from signalbox.v1 import frontend_pb2 as frontend
from signalbox.v1.frontend_pb2_grpc import GenerationServiceServicer

SERVICE = "signalbox.v1.GenerationService"
R = TypeVar("R")


class GenerationServicer(GenerationServiceServicer):
    """Turns calls into sessions and deltas into messages."""

    def __init__(self, intake: Intake, directory: ModelDirectory, metrics: Metrics) -> None:
        self._intake = intake
        self._directory = directory
        self._metrics = metrics

    async def Generate(  # noqa: N802
        self, request: frontend.GenerateRequest, context: Context
    ) -> AsyncIterator[frontend.GenerateResponse]:
        """Streams the output of one request, all choices in one stream."""
        choices = await self._accept(request, context)
        try:
            yield make_accepted(choices)
            while news := await choices.next_deltas():
                for index, delta in news:
                    for response in make_responses(index, delta):
                        yield response
        finally:
            choices.cancel()  # the client left, or its deadline passed

    async def Embed(  # noqa: N802
        self, request: frontend.EmbedRequest, context: Context
    ) -> frontend.EmbedResponse:
        """One vector per input."""

        async def embed() -> frontend.EmbedResponse:
            with self._metrics.counting_refusals():
                choices = await self._open(read_embed(request, context), 1)
            try:
                return make_embeddings(choices, await choices.collect())
            finally:
                choices.cancel()

        return await self._answer(context, embed)

    async def Tokenize(  # noqa: N802
        self, request: frontend.TokenizeRequest, context: Context
    ) -> frontend.TokenizeResponse:
        """Token ids of a text."""

        async def tokenize() -> frontend.TokenizeResponse:
            refuse_unknown_fields(request)
            self._directory.resolve(request.model)
            tokenizer = self._intake.require_tokenizer("text")
            token_ids = await tokenizer.encode(request.text, add_special_tokens=not request.raw)
            return frontend.TokenizeResponse(token_ids=token_ids)

        return await self._answer(context, tokenize)

    async def Detokenize(  # noqa: N802
        self, request: frontend.DetokenizeRequest, context: Context
    ) -> frontend.DetokenizeResponse:
        """Text of token ids."""

        async def detokenize() -> frontend.DetokenizeResponse:
            refuse_unknown_fields(request)
            model = self._directory.resolve(request.model)
            tokenizer = self._intake.require_tokenizer("token_ids")
            check_token_ids(request.token_ids, model.vocab_size, "token_ids")
            return frontend.DetokenizeResponse(text=tokenizer.decode(list(request.token_ids)))

        return await self._answer(context, detokenize)

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

    async def _accept(self, request: frontend.GenerateRequest, context: Context) -> Choices:
        """The choices once the first is placed; a refusal ends the call with its status."""
        choices = None
        try:
            with self._metrics.counting_refusals():
                asked, count = read_generate(request, context)
                choices = await self._open([asked], count)
            await choices.wait_accepted()
            return choices
        except SignalboxError as error:
            await rpc.abort(context, error)
        except Exception as error:
            await rpc.abort(context, InternalError(f"internal error ({type(error).__name__})"))
        except BaseException:
            if choices is not None:
                choices.cancel()
            raise

    async def _open(self, prompts: list[Asked], num_per_prompt: int) -> Choices:
        most = self._intake.limits.max_choices
        if len(prompts) > most:
            raise InvalidRequestError(
                f"inputs has {len(prompts)}, at most {most} are allowed", field="inputs"
            )
        return await open_choices(self._intake, prompts, num_per_prompt)

    async def _answer(self, context: Context, work: Callable[[], Awaitable[R]]) -> R:
        """Of a unary call."""
        try:
            return await work()
        except SignalboxError as error:
            await rpc.abort(context, error)
        except Exception as error:
            await rpc.abort(context, InternalError(f"internal error ({type(error).__name__})"))
