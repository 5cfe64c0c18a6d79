"""One trace per request, through real processes to a real collector."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Any

import grpc
import httpx
import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.schemas import Schemas

from signalbox.client import Client
from signalbox.telemetry import attributes as names
from signalbox.v1 import frontend_pb2, frontend_pb2_grpc
from tests.ports import free_ports
from tests.telemetry.conftest import LaunchTraced, Measured
from tests.telemetry.receiver import Received, Receiver

PROMPT = [5, 6, 7, 8, 9, 10]
MAX_TOKENS = 8
BODY = {"model": "demo", "prompt": PROMPT, "max_tokens": MAX_TOKENS, "temperature": 0, "ignore_eos": True}
PARENT = "b7ad6b7169203331"


def new_trace(flags: str = "01") -> tuple[str, dict[str, str]]:
    """Its id, and the headers that name it."""
    trace_id = secrets.token_hex(16)
    return trace_id, {"traceparent": f"00-{trace_id}-{PARENT}-{flags}", "tracestate": "vendor=1"}


def complete(measured: Measured, headers: dict[str, str], prompt: list[int] = PROMPT) -> None:
    body = BODY | {"prompt": prompt}
    answer = httpx.post(f"{measured.ring.url}/v1/completions", json=body, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == MAX_TOKENS


def one(spans: list[Received], name: str) -> Received:
    (span,) = [span for span in spans if span.name == name]
    return span


@pytest.fixture(scope="module")
def trace(measured: Measured, receiver: Receiver) -> list[Received]:
    """Of one HTTP request."""
    trace_id, headers = new_trace()
    complete(measured, headers)
    return receiver.wait(lambda spans: len(spans) >= 4, trace_id)


def test_all_services_speak_of_one_trace(trace: list[Received]) -> None:
    assert [(span.service, span.name) for span in trace] == [
        ("signalbox-frontend", "text_completion demo"),
        ("signalbox-scheduler", "queue"),
        ("signalbox-worker", "prefill"),
        ("signalbox-worker", "decode"),
    ]


def test_the_frontends_span_is_the_clients_child_and_the_others_parent(trace: list[Received]) -> None:
    server, *others = trace
    assert server.is_server
    assert server.parent_id == PARENT
    assert {span.parent_id for span in others} == {server.span_id}
    assert not any(span.is_server or span.is_error for span in others)
    assert {span.tracestate for span in trace} == {"vendor=1"}


def test_the_frontends_span_has_the_attributes_of_the_conventions(trace: list[Received]) -> None:
    attributes = trace[0].attributes
    expected = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "signalbox",
        "gen_ai.request.model": "demo",
        "gen_ai.request.max_tokens": MAX_TOKENS,
        "gen_ai.usage.input_tokens": len(PROMPT),
        "gen_ai.usage.output_tokens": MAX_TOKENS,
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.response.model": "demo",
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.request.temperature": 0,
    }
    assert {name: attributes.get(name) for name in expected} == expected
    assert attributes["gen_ai.response.time_to_first_chunk"] > 0
    assert {span.schema_url for span in trace} == {names.SCHEMA_URL}


def test_names_of_the_conventions_are_those_of_the_installed_ones() -> None:
    known = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    ours = {value for name, value in vars(names).items() if name.startswith("GEN_AI_")}
    assert len(ours) > 10
    assert ours <= known
    assert names.SCHEMA_URL in {schema.value for schema in Schemas}


def test_the_events_tell_the_course_of_the_request(trace: list[Received]) -> None:
    server, queue, prefill, decode = trace
    assert server.event_names == ["first_token", "finished"]
    assert queue.event_names == ["submitted", "placed"]
    assert prefill.event_names == ["first_token"]
    assert decode.event_names == ["finished"]
    assert decode.events[0][2] == {"signalbox.reason": "length"}
    assert prefill.attributes["signalbox.run.num_tokens"] == len(PROMPT)
    assert decode.attributes["signalbox.run.num_tokens"] == MAX_TOKENS - 1
    assert decode.attributes["signalbox.run.num_steps"] == MAX_TOKENS - 1


def test_the_times_are_in_order(trace: list[Received]) -> None:
    server, queue, prefill, decode = trace
    times = [server.start_ns, queue.start_ns, queue.end_ns, prefill.start_ns, prefill.end_ns, decode.end_ns]
    assert times == sorted(times)
    assert decode.end_ns < server.end_ns
    assert decode.start_ns == pytest.approx(prefill.end_ns, abs=1e6)
    assert (MAX_TOKENS - 1) * 2e6 <= decode.end_ns - decode.start_ns < 5e9
    assert abs(server.end_ns - time.time_ns()) < 60e9


def test_a_request_without_a_trace_gets_one(measured: Measured, receiver: Receiver) -> None:
    before = {span.trace_id for span in receiver.spans()}

    def new(spans: list[Received]) -> list[Received]:
        return [span for span in spans if span.trace_id not in before]

    complete(measured, {})
    spans = new(receiver.wait(lambda spans: len(new(spans)) >= 4))
    assert len({span.trace_id for span in spans}) == 1
    assert [span.service for span in spans if not span.parent_id] == ["signalbox-frontend"]


def test_a_request_that_is_not_sampled_leaves_nothing(measured: Measured, receiver: Receiver) -> None:
    unsampled, headers = new_trace("00")
    complete(measured, headers)
    later, headers = new_trace()
    complete(measured, headers)
    receiver.wait(lambda spans: len(spans) >= 4, later)
    assert receiver.spans(unsampled) == []


def test_a_refused_request_is_an_error_span(measured: Measured, receiver: Receiver) -> None:
    trace_id, headers = new_trace()
    body = BODY | {"model": "nobody's"}
    assert httpx.post(f"{measured.ring.url}/v1/completions", json=body, headers=headers).status_code == 404
    (span,) = receiver.wait(lambda spans: spans, trace_id)
    assert span.is_error
    assert span.attributes["error.type"] == "UnknownModelError"


def test_a_client_that_leaves_is_a_cancel(measured: Measured, receiver: Receiver) -> None:
    trace_id, headers = new_trace()
    body = BODY | {"max_tokens": 100, "stream": True}
    with httpx.stream("POST", f"{measured.ring.url}/v1/completions", json=body, headers=headers) as answer:
        next(answer.iter_lines())
    spans = receiver.wait(lambda spans: len(spans) >= 4, trace_id)
    assert "cancelled" in spans[0].event_names
    assert not spans[0].is_error
    assert one(spans, "decode").event_names == ["released"]


def is_complete(spans: list[Received]) -> bool:
    """Of eight requests in one trace: services send at different times."""
    stays = sum(span.attributes.get("signalbox.queue.reason") == "preempted" for span in spans)
    runs = [event for span in spans if span.service == "signalbox-worker" for event in span.event_names]
    servers = sum(span.is_server for span in spans)
    return servers == runs.count("finished") == 8 and stays == runs.count("resumed")


async def test_a_preemption_shows(measured: Measured, receiver: Receiver) -> None:
    trace_id, headers = new_trace()

    async def run(client: httpx.AsyncClient, number: int) -> int:
        body = BODY | {"prompt": [number] * 20, "max_tokens": 60}
        answer = await client.post(
            f"{measured.ring.url}/v1/completions", json=body, headers=headers, timeout=60
        )
        return int(answer.status_code)

    async with httpx.AsyncClient() as client:
        assert set(await asyncio.gather(*(run(client, number + 1) for number in range(8)))) == {200}
    spans = receiver.wait(is_complete, trace_id)
    stays = [span for span in spans if span.attributes.get("signalbox.queue.reason") == "preempted"]
    assert stays
    for stay in stays:
        assert stay.event_names == ["preempted", "resumed"]
        runs = [
            span for span in spans if span.parent_id == stay.parent_id and span.service == "signalbox-worker"
        ]
        assert "preempted" in [event for run in runs for event in run.event_names]
        assert "resumed" in [event for run in runs for event in run.event_names]
        assert sum("finished" in run.event_names for run in runs) == 1
        assert sum("first_token" in run.event_names for run in runs) == 1


async def test_grpc_metadata_carries_the_trace_too(measured: Measured, receiver: Receiver) -> None:
    trace_id, headers = new_trace()
    request = frontend_pb2.GenerateRequest()
    request.token_ids.ids.extend(PROMPT)
    request.sampling.max_tokens = MAX_TOKENS
    async with grpc.aio.insecure_channel(measured.ring.grpc) as channel:
        stub = frontend_pb2_grpc.GenerationServiceStub(channel)
        async for _ in stub.Generate(request, metadata=tuple(headers.items())):
            pass
    spans = receiver.wait(lambda spans: any(span.is_server for span in spans), trace_id)
    assert [span.parent_id for span in spans if span.is_server] == [PARENT]


@pytest.mark.slow
async def test_requests_go_on_when_the_endpoint_is_dead(launch_traced: LaunchTraced) -> None:
    ring = launch_traced(f"http://127.0.0.1:{free_ports(1)[0]}")
    async with Client(ring.grpc) as client:
        options: dict[str, Any] = {"max_tokens": MAX_TOKENS, "temperature": 0, "ignore_eos": True}
        results = await asyncio.gather(*(client.generate([n], **options).result() for n in range(1, 40)))
    assert {len(result.token_ids) for result in results} == {MAX_TOKENS}
    started = time.monotonic()
    assert ring.stop() == 0, ring.logs()
    assert time.monotonic() - started < 15
    assert "Traceback" not in ring.logs()
