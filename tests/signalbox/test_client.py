"""The client against a real gRPC server that plays a frontend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from signalbox.client import Client, Delta, FinishReason, Model
from signalbox.errors import (
    CancelledError,
    DeadlineExceededError,
    InternalError,
    InvalidRequestError,
    SignalboxError,
    UnavailableError,
    UnknownModelError,
    UnsupportedError,
)
from signalbox.links import rpc
from signalbox.v1 import frontend_pb2, frontend_pb2_grpc, generation_pb2
from tests.ports import free_ports

Context = Any


class Frontend(frontend_pb2_grpc.GenerationServiceServicer):
    """Answers with what a test has put into `script`: messages to send, an error to end with, None: hang."""

    def __init__(self) -> None:
        self.script: list[frontend_pb2.GenerateResponse | SignalboxError | grpc.StatusCode | None] = []
        self.request = frontend_pb2.GenerateRequest()
        self.cancelled = asyncio.Event()

    async def Generate(  # noqa: N802
        self, request: frontend_pb2.GenerateRequest, context: Context
    ) -> AsyncIterator[frontend_pb2.GenerateResponse]:
        self.request = request
        for item in self.script:
            if isinstance(item, SignalboxError):
                await rpc.abort(context, item)
            elif isinstance(item, grpc.StatusCode):
                await context.abort(item, "no more")
            elif item is None:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.cancelled.set()
                    raise
            else:
                yield item

    async def ListModels(  # noqa: N802
        self, request: frontend_pb2.ListModelsRequest, context: Context
    ) -> frontend_pb2.ListModelsResponse:
        model = frontend_pb2.ModelInfo(id="demo", max_model_len=2048, num_workers=2)
        return frontend_pb2.ListModelsResponse(models=[model])


@pytest.fixture
async def frontend() -> Frontend:
    return Frontend()


@pytest.fixture
async def client(frontend: Frontend) -> AsyncIterator[Client]:
    server = rpc.Server(["signalbox.v1.GenerationService"])
    frontend_pb2_grpc.add_GenerationServiceServicer_to_server(frontend, server.grpc)
    port = await server.start("127.0.0.1:0")
    async with Client(f"127.0.0.1:{port}") as client:
        yield client
    await server.stop(0)


def accepted() -> frontend_pb2.GenerateResponse:
    return frontend_pb2.GenerateResponse(accepted=frontend_pb2.Accepted(request_id="r1", num_prompt_tokens=3))


def text(piece: str, *token_ids: int) -> frontend_pb2.GenerateResponse:
    return frontend_pb2.GenerateResponse(text=piece, token_ids=token_ids)


def finished(reason: generation_pb2.FinishReason, **fields: Any) -> frontend_pb2.GenerateResponse:
    return frontend_pb2.GenerateResponse(finished=frontend_pb2.Finished(reason=reason, **fields))


async def raised_by(client: Client) -> SignalboxError:
    async with asyncio.timeout(10):
        with pytest.raises(SignalboxError) as error:
            await client.generate("a").result()
    return error.value


async def test_deltas_come_one_by_one_and_make_the_result(client: Client, frontend: Frontend) -> None:
    end = finished(
        generation_pb2.FINISH_REASON_LENGTH, num_prompt_tokens=3, num_output_tokens=3, num_cached_tokens=2
    )
    frontend.script = [accepted(), text("Hel", 1, 2), text("lo", 3), end]
    generation = client.generate("say")
    deltas = [delta async for delta in generation]
    assert [(delta.text, delta.token_ids) for delta in deltas] == [("Hel", (1, 2)), ("lo", (3,)), ("", ())]
    assert [delta.finished is not None for delta in deltas] == [False, False, True]
    result = await generation.result()
    assert (result.request_id, result.text, result.token_ids) == ("r1", "Hello", (1, 2, 3))
    assert result.finished.reason is FinishReason.LENGTH
    assert (result.finished.num_prompt_tokens, result.finished.num_cached_tokens) == (3, 2)


async def test_a_stop_string_and_logprobs_arrive(client: Client, frontend: Frontend) -> None:
    top = generation_pb2.TokenLogprobs(logprob=-0.5, rank=2, top_token_ids=[9, 8], top_logprobs=[-0.25, -0.5])
    frontend.script = [
        frontend_pb2.GenerateResponse(text="x", token_ids=[8], logprobs=[top]),
        finished(generation_pb2.FINISH_REASON_STOP, stop="\n"),
    ]
    result = await client.generate("say").result()
    assert result.finished.stop == "\n"
    assert result.logprobs[0].rank == 2
    assert result.logprobs[0].top == ((9, -0.25), (8, -0.5))


async def test_the_request_is_sent_as_given(client: Client, frontend: Frontend) -> None:
    frontend.script = [finished(generation_pb2.FINISH_REASON_STOP)]
    await client.generate(
        [5, 6], model="demo", priority=-3, cache_salt="s", temperature=0, stop=["a"], logit_bias={7: 1.5}
    ).result()
    request = frontend.request
    assert list(request.token_ids.ids) == [5, 6]
    assert (request.model, request.priority, request.cache_salt) == ("demo", -3, "s")
    assert request.sampling.HasField("temperature")
    assert not request.sampling.HasField("top_p")
    assert (list(request.sampling.stop), dict(request.sampling.logit_bias)) == (["a"], {7: 1.5})


async def test_models_are_listed(client: Client) -> None:
    assert await client.list_models() == [Model("demo", 2048, 2)]


async def test_a_refusal_comes_back_as_its_class(client: Client, frontend: Frontend) -> None:
    frontend.script = [UnknownModelError("no model is called x", field="model")]
    error = await raised_by(client)
    assert (type(error), error.message, error.field) == (UnknownModelError, "no model is called x", "model")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidRequestError),
        (grpc.StatusCode.UNAVAILABLE, UnavailableError),
        (grpc.StatusCode.UNIMPLEMENTED, UnsupportedError),
        (grpc.StatusCode.INTERNAL, InternalError),
        (grpc.StatusCode.UNKNOWN, InternalError),
    ],
)
async def test_a_bare_status_has_a_class(
    client: Client, frontend: Frontend, status: grpc.StatusCode, kind: type[SignalboxError]
) -> None:
    frontend.script = [status]
    error = await raised_by(client)
    assert type(error) is kind
    assert "no more" in error.message


async def test_a_failure_after_acceptance_is_raised(client: Client, frontend: Frontend) -> None:
    failure = generation_pb2.Error(code="InternalError", message="the worker failed")
    frontend.script = [accepted(), text("a", 1), finished(generation_pb2.FINISH_REASON_ERROR, error=failure)]
    error = await raised_by(client)
    assert (type(error), error.message) == (InternalError, "the worker failed")


async def test_an_abort_is_not_a_short_output(client: Client, frontend: Frontend) -> None:
    frontend.script = [accepted(), finished(generation_pb2.FINISH_REASON_ABORT)]
    assert type(await raised_by(client)) is CancelledError


async def test_a_stream_without_an_end_is_an_error(client: Client, frontend: Frontend) -> None:
    frontend.script = [accepted(), text("a", 1)]
    assert "before the request ended" in (await raised_by(client)).message


async def first_delta(client: Client, frontend: Frontend) -> tuple[Any, Delta]:
    frontend.script = [accepted(), text("a", 1), None]
    generation = client.generate("say")
    return generation, await anext(generation)


async def test_cancel_reaches_the_server(client: Client, frontend: Frontend) -> None:
    generation, delta = await first_delta(client, frontend)
    assert (delta.text, generation.request_id) == ("a", "r1")
    generation.cancel()
    with pytest.raises(CancelledError):
        await generation.result()
    await asyncio.wait_for(frontend.cancelled.wait(), 10)


async def test_a_cancelled_task_cancels_its_request(client: Client, frontend: Frontend) -> None:
    generation, _ = await first_delta(client, frontend)
    waiting = asyncio.create_task(generation.result())
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.wait_for(frontend.cancelled.wait(), 10)


async def test_closing_the_client_cancels_its_requests(client: Client, frontend: Frontend) -> None:
    await first_delta(client, frontend)
    await client.close()
    await asyncio.wait_for(frontend.cancelled.wait(), 10)


async def test_the_time_limit_ends_a_request(client: Client, frontend: Frontend) -> None:
    frontend.script = [accepted(), None]
    with pytest.raises(DeadlineExceededError):
        await client.generate("say", timeout_s=0.3).result()


async def test_nothing_answers() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    async with Client(address) as client:
        error = await raised_by(client)
        assert (type(error), error.message) == (
            UnavailableError,
            f"nothing answers at {address}; start it with `signalbox up`",
        )
        with pytest.raises(UnavailableError, match="nothing answers at"):
            await client.list_models()
