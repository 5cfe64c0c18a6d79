"""The ways of a load bench to a server, against real servers of a few lines."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from frontend_svc.api.grpc.bounds import MAX_STREAMS
from signalbox.benchmarks.load.driver import Limit, closed_loop, open_loop
from signalbox.benchmarks.load.grpc_link import GrpcLink
from signalbox.benchmarks.load.http_link import HttpLink
from signalbox.benchmarks.load.record import Record
from signalbox.benchmarks.load.workload import GREEDY, Draw, Lengths, Plan, Workload
from signalbox.errors import InvalidRequestError, ResourceExhaustedError, UnavailableError
from signalbox.links import rpc
from signalbox.v1 import frontend_pb2, frontend_pb2_grpc, generation_pb2
from tests.ports import free_ports

PLAN = Plan([1, 2, 3], 4)
DRAWN = Draw(temperature=0.5, top_k=7, top_p=0.25)
Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


async def run(link: Any, plan: Plan = PLAN) -> Record:
    record = Record(intended_at=time.perf_counter(), num_prompt_tokens=len(plan.prompt))
    await link.run(plan, record)
    assert record.ended_at >= record.intended_at
    return record


# -- gRPC --


class Servicer(frontend_pb2_grpc.GenerationServiceServicer):
    """Tokens are counted up; a first token id chooses what goes wrong."""

    def __init__(self) -> None:
        self.prompts: list[list[int]] = []
        self.samplings: list[generation_pb2.SamplingParams] = []
        self.cancelled = asyncio.Event()

    async def ListModels(self, request: Any, context: Any) -> frontend_pb2.ListModelsResponse:  # noqa: N802
        return frontend_pb2.ListModelsResponse(models=[frontend_pb2.ModelInfo(id="m")])

    async def Generate(  # noqa: N802
        self, request: frontend_pb2.GenerateRequest, context: Any
    ) -> AsyncIterator[frontend_pb2.GenerateResponse]:
        ids = list(request.token_ids.ids)
        self.prompts.append(ids)
        self.samplings.append(request.sampling)
        if ids[0] == 401:
            await rpc.abort(context, ResourceExhaustedError("full up, 100%"))
        if ids[0] == 402:
            await context.abort(rpc.grpc.StatusCode.DATA_LOSS, "bare")
        if ids[0] == 403:
            return
        if ids[0] == 404:
            try:
                await asyncio.sleep(60)
            finally:
                self.cancelled.set()
        count = request.sampling.max_tokens
        for token in range(count):
            await asyncio.sleep(0.002)
            yield frontend_pb2.GenerateResponse(token_ids=[token], text="x" * 100)
        yield frontend_pb2.GenerateResponse(finished=frontend_pb2.Finished(num_output_tokens=count))


@asynccontextmanager
async def grpc_link(max_streams: int = 1000, **options: Any) -> AsyncIterator[tuple[GrpcLink, Servicer]]:
    server = rpc.Server([], options=[("grpc.max_concurrent_streams", max_streams)])
    servicer = Servicer()
    frontend_pb2_grpc.add_GenerationServiceServicer_to_server(servicer, server.grpc)
    port = await server.start("127.0.0.1:0")
    link = GrpcLink(f"127.0.0.1:{port}", **options)
    try:
        assert await link.find_model() == "m"
        yield link, servicer
    finally:
        await link.close()
        await server.stop(0)


async def test_grpc_requests_run_side_by_side() -> None:
    async with grpc_link(connections=2) as (link, servicer):
        records = await asyncio.gather(*(run(link) for _ in range(50)))
    assert [record.error for record in records] == [""] * 50
    assert all(sum(record.counts) == record.num_output_tokens == 4 for record in records)
    assert all(record.gaps_s() and min(record.gaps_s()) >= 0 for record in records)
    assert servicer.prompts == [[1, 2, 3]] * 50


async def test_no_more_calls_are_on_a_connection_than_a_frontend_takes() -> None:
    """Further ones would be refused by stream."""
    async with grpc_link(max_streams=MAX_STREAMS) as (link, _):
        records = await asyncio.gather(*(run(link, Plan([1], 100)) for _ in range(2 * MAX_STREAMS + 1)))
        assert len(link._connections) == 3
    assert [record.error for record in records] == [""] * len(records)


@pytest.mark.parametrize(
    ("draw", "expected"),
    [(GREEDY, {"temperature": 0.0}), (DRAWN, {"temperature": 0.5, "top_k": 7, "top_p": 0.25})],
)
async def test_grpc_requests_draw_as_asked(draw: Draw, expected: dict[str, float]) -> None:
    async with grpc_link(draw=draw) as (link, servicer):
        await run(link, Plan([1], 4))
    (sampling,) = servicer.samplings
    given = {field.name: value for field, value in sampling.ListFields()}
    assert given == expected | {"max_tokens": 4, "ignore_eos": True}


async def test_grpc_prompts_larger_than_any_window_arrive_whole() -> None:
    prompts = [[number, *range(10**6, 10**6 + 100_000)] for number in range(3)]
    async with grpc_link() as (link, servicer):
        records = await asyncio.gather(*(run(link, Plan(prompt, 1)) for prompt in prompts))
        assert [record.error for record in records] == [""] * 3
        assert sorted(servicer.prompts) == prompts


async def test_grpc_answers_larger_than_the_first_window_arrive_whole() -> None:
    async with grpc_link() as (link, _):
        record = await run(link, Plan([1], 1500))
    assert (record.error, sum(record.counts)) == ("", 1500)


@pytest.mark.parametrize(
    ("first", "code", "message"),
    [
        (401, "ResourceExhaustedError", "full up, 100%"),
        (402, "grpc_15", "bare"),
        (403, "InternalError", "the stream ended before the request"),
    ],
)
async def test_grpc_errors_have_their_code(first: int, code: str, message: str) -> None:
    async with grpc_link() as (link, _):
        record = await run(link, Plan([first], 1))
    assert (record.error, record.error_message) == (code, message)


async def test_a_grpc_request_that_takes_too_long_is_cancelled_at_the_server() -> None:
    async with grpc_link(timeout_s=0.2) as (link, servicer):
        record = await run(link, Plan([404], 1))
        assert record.error == "DeadlineExceededError"
        await asyncio.wait_for(servicer.cancelled.wait(), 5)


async def test_a_grpc_server_that_goes_and_comes_back() -> None:
    port = free_ports(1)[0]
    link = GrpcLink(f"127.0.0.1:{port}", "m")
    assert (await run(link)).error == "UnavailableError"
    for _ in range(2):
        server = rpc.Server([])
        frontend_pb2_grpc.add_GenerationServiceServicer_to_server(Servicer(), server.grpc)
        await server.start(f"127.0.0.1:{port}")
        assert (await run(link)).error == ""
        hanging = asyncio.create_task(run(link, Plan([404], 1)))
        await asyncio.sleep(0.1)
        await server.stop(0)
        assert (await hanging).error
    await link.close()
    with pytest.raises(UnavailableError, match="nothing answers"):
        await link.find_model()


# -- HTTP --


def event(data: object) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def whole(status: str, body: object) -> bytes:
    data = json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


class HttpServer:
    """Answers every POST as `answer` says, and counts connections."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.num_connections = 0
        self.bodies: list[dict[str, Any]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        while head := await reader.readuntil(b"\r\n\r\n"):
            size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
            body = await reader.readexactly(size)
            if head.startswith(b"GET"):
                writer.write(whole("200 OK", {"data": [{"id": "a"}, {"id": "b"}]}))
                continue
            self.bodies.append(json.loads(body))
            await self._answer(body, writer)


@asynccontextmanager
async def http_link(answer: Answer, **options: Any) -> AsyncIterator[tuple[HttpLink, HttpServer]]:
    scripted = HttpServer(answer)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await scripted.serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    link = HttpLink(f"http://127.0.0.1:{port}/v1", "a", **options)
    try:
        yield link, scripted
    finally:
        await link.close()
        server.close()


async def stream(body: bytes, writer: asyncio.StreamWriter) -> None:
    """Three events of text, one of them cut in two by chunks, then usage."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n")
    first = event({"choices": [{"text": "a", "finish_reason": None}]})
    for part in (
        first[:9],
        first[9:] + first,
        event({"choices": [{"text": "b", "finish_reason": "length"}]}),
    ):
        writer.write(chunk(part))
        await writer.drain()
        await asyncio.sleep(0.01)
    writer.write(chunk(event({"choices": [], "usage": {"completion_tokens": 4}})))
    writer.write(chunk(event(b"[DONE]")) + b"0\r\n\r\n")


async def test_http_streams_are_read_and_connections_used_again() -> None:
    async with http_link(stream) as (link, server):
        assert await link.find_model() == "a"
        records = [await run(link) for _ in range(3)]
    assert [record.error for record in records] == [""] * 3
    assert [(len(record.arrivals), record.num_output_tokens) for record in records] == [(3, 4)] * 3
    assert server.num_connections == 1
    assert server.bodies[0]["prompt"] == [1, 2, 3]
    assert server.bodies[0]["ignore_eos"] is server.bodies[0]["stream"] is True


async def test_http_requests_draw_as_asked() -> None:
    async with http_link(stream, draw=DRAWN) as (link, server):
        await run(link)
    async with http_link(stream) as (link, greedy):
        await run(link)
    assert server.bodies[0].items() >= {"temperature": 0.5, "top_k": 7, "top_p": 0.25}.items()
    assert greedy.bodies[0]["temperature"] == 0
    assert not {"top_k", "top_p"} & greedy.bodies[0].keys(), "not every server knows them"


async def test_http_errors_have_their_status() -> None:
    async def refuse(body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(whole("429 Too Many Requests", {"error": {"message": "later"}}))

    async with http_link(refuse) as (link, _):
        record = await run(link)
    assert (record.error, record.error_message) == ("http_429", "later")


async def test_an_error_inside_an_http_stream() -> None:
    async def fail(body: bytes, writer: asyncio.StreamWriter) -> None:
        data = event({"choices": [{"text": "a"}]}) + event(
            {"error": {"type": "server_error", "message": "m"}}
        )
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(data) + b"0\r\n\r\n")

    async with http_link(fail) as (link, _):
        record = await run(link)
    assert (record.error, record.error_message) == ("server_error", "m")


async def test_an_http_connection_that_breaks() -> None:
    async def break_off(body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nda")
        await writer.drain()
        writer.close()

    async with http_link(break_off) as (link, _):
        assert (await run(link)).error == "UnavailableError"


async def test_a_connection_that_was_closed_behind_its_answer_is_dialled_anew() -> None:
    """As llama-server does: its client learns of it when it sends the next request."""

    async def answer_once(body: bytes, writer: asyncio.StreamWriter) -> None:
        await stream(body, writer)
        writer.close()

    async with http_link(answer_once) as (link, server):
        link._pool._take_idle = lambda: link._pool._idle.pop() if link._pool._idle else None  # type: ignore[method-assign]
        records = [await run(link) for _ in range(3)]
    assert [(record.error, record.num_output_tokens) for record in records] == [("", 4)] * 3
    assert server.num_connections == 3


async def test_what_does_not_speak_http() -> None:
    async def mumble(body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-server\r\n")

    async with http_link(mumble) as (link, _):
        assert (await run(link)).error == "UnavailableError"


async def test_an_http_request_that_takes_too_long() -> None:
    async def sleep(body: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    async with http_link(sleep, timeout_s=0.2) as (link, _):
        assert (await run(link)).error == "DeadlineExceededError"


async def test_several_models_need_a_name() -> None:
    async with http_link(stream) as (link, _):
        link._model = ""
        with pytest.raises(InvalidRequestError, match="serves a, b: choose one with --model"):
            await link.find_model()


# -- loops --


class BusyClient:
    """A link whose requests take 10 ms, in which nothing else of the client runs."""

    def __init__(self, blocking: bool = False, error: str = "") -> None:
        self.num_running = self.most_running = 0
        self._blocking, self._error = blocking, error

    async def find_model(self) -> str:
        return "m"

    async def run(self, plan: Plan, record: Record) -> None:
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        record.sent_at = time.perf_counter()
        if self._blocking:
            time.sleep(0.01)
        else:
            await asyncio.sleep(0.01)
        record.arrivals, record.counts, record.num_output_tokens = [time.perf_counter()], [1], 1
        record.ended_at, record.error = record.arrivals[0], self._error
        self.num_running -= 1

    async def close(self) -> None:
        pass


def plans() -> Any:
    return Workload(Lengths(4, 4), Lengths(1, 1), 10, "0").plans()


async def test_a_closed_loop_keeps_so_many_running() -> None:
    link = BusyClient()
    records, (start, end) = await closed_loop(link, plans(), 5, Limit(num_requests=23))
    assert (len(records), link.most_running) == (23, 5)
    assert end == max(record.ended_at for record in records) > start


async def test_a_duration_ends_a_closed_loop_and_its_window() -> None:
    records, (start, end) = await closed_loop(BusyClient(), plans(), 2, Limit(duration_s=0.1))
    assert end - start == pytest.approx(0.1)
    assert 4 <= len(records) <= 22
    assert max(record.ended_at for record in records) >= end


async def test_a_server_that_refuses_is_not_asked_in_a_tight_loop() -> None:
    records, _ = await closed_loop(BusyClient(error="x"), plans(), 1, Limit(duration_s=0.3))
    assert len(records) <= 3


async def test_an_open_loop_does_not_wait_for_answers() -> None:
    link = BusyClient()
    records, _ = await open_loop(link, plans(), [0.0, 0.001, 0.002, 0.003], Limit(num_requests=10))
    assert (len(records), link.most_running) == (4, 4)


async def test_what_an_open_loop_sends_late_counts_from_its_time() -> None:
    records, _ = await open_loop(BusyClient(blocking=True), plans(), [0.0] * 10, Limit(num_requests=10))
    assert max(record.ttft_s for record in records) >= 0.1
    assert max(record.arrivals[0] - record.sent_at for record in records) < 0.09


async def test_a_duration_ends_an_open_loop() -> None:
    records, _ = await open_loop(BusyClient(), plans(), [0.0, 0.05, 0.5], Limit(duration_s=0.2))
    assert len(records) == 2
