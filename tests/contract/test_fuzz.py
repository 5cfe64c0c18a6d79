"""Ten thousand random requests over HTTP and gRPC to a whole ring: no 500, no hang, nothing left behind."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from signalbox.v1 import frontend_pb2
from signalbox.v1.frontend_pb2_grpc import GenerationServiceStub
from tests.contract.agents.event_order import check_messages, check_responses
from tests.contract.fuzz_agents import agent_requests
from tests.contract.fuzz_inputs import (
    GOOD_FILE,
    GRPC_REQUESTS,
    JSON,
    LINES,
    ODD_FILE,
    PROTO_TEXTS,
    http_requests,
)
from tests.contract.test_openai_sdk import assert_empty
from tests.e2e.conftest import RunningRing, StartRing

BATCH = 25
"""Requests at a time."""
SCALE = int(os.environ.get("SIGNALBOX_FUZZ", "1"))
"""`make soak` asks many times as much."""
NUM_HTTP_BATCHES, NUM_AGENTS_BATCHES, NUM_GRPC_BATCHES = 100 * SCALE, 50 * SCALE, 50 * SCALE
LIMIT_S = 20
"""A request that takes longer hangs."""
FINE_HTTP = {200, 400, 404, 409, 413}
"""404 is for a model that is not served, or a file that is not there."""
NO_FORMS = "this worker cannot follow structured_output"
"""How a forced call ends with the simulated model: it is asked first and says so then."""
FINE_GRPC = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.CANCELLED,
}
CONTEXT, AGENTS_CONTEXT = 96, 1024
"""Tokens, so that no request takes long."""
TEMPLATE = (
    "{% for t in tools or [] %}{{ t['function']['name'] }}\n{% endfor %}{% for m in messages %}{{ m['role'] }}: "
    "{% if enable_thinking is not false %}{{ m['reasoning_content'] or '' }}{% endif %}{{ m['content'] or '' }}"
    "{% for c in m['tool_calls'] or [] %}<tool_call>{{ c['function'] | tojson }}</tool_call>{% endfor %}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% if enable_thinking is not false %}<think>{% endif %}{% endif %}"
)
"""Like Qwen3's, in few tokens."""
FUZZ = {
    "deadline": None,
    "database": None,
    "phases": [Phase.generate],  # to make a batch smaller takes longer than to read it
    "suppress_health_check": [
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
}


@pytest.fixture(scope="module")
def ring(start_ring: StartRing, tmp_path_factory: pytest.TempPathFactory) -> RunningRing:
    options = {"runner": "sim", "sim_base_ms": 0.2, "sim_token_ms": 0, "max_model_len": CONTEXT}
    flags = [flag for name, value in options.items() for flag in ("--worker-set", f"{name}={value}")]
    return start_ring(*flags, "--frontend-set", f"files-dir={tmp_path_factory.mktemp('files')}")


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def check_left_behind(ring: RunningRing) -> None:
    assert_empty(ring)
    assert "Traceback" not in ring.logs()


# ---- HTTP


def upload(ring: RunningRing, content: bytes) -> str:
    """The id of a file for batches."""
    sent = {"file": ("a.jsonl", content)}
    answer = httpx.post(f"{ring.url}/v1/files", data={"purpose": "batch"}, files=sent, timeout=LIMIT_S)
    return str(answer.json()["id"])


async def ask_http(
    client: httpx.AsyncClient, path: str, body: bytes, kind: str = JSON, *, leaves: bool
) -> None:
    async with client.stream("POST", path, content=body, headers={"content-type": kind.encode()}) as answer:
        assert answer.status_code in FINE_HTTP, (path, body, await answer.aread())
        if leaves:
            return  # before a word was read
        text = (await answer.aread()).decode()
    assert "InternalError" not in text, (path, body, text)
    if not answer.headers["content-type"].startswith("text/event-stream"):
        whole = json.loads(text)
        assert answer.status_code == 200 or whole["error"]["message"]
    elif NO_FORMS in text and path in ("/v1/responses", "/v1/messages"):
        last = text.split("\n\n")[-2]
        assert NO_FORMS in last and "_stop" not in text and "response.completed" not in text, text
    elif path == "/v1/responses":
        check_responses(text)
    elif path == "/v1/messages":
        check_messages(text)
    else:
        assert text.endswith("data: [DONE]\n\n"), (path, body, text)


@pytest.mark.slow
@pytest.mark.timeout(300 * SCALE)
def test_http(ring: RunningRing, runner: asyncio.Runner) -> None:
    limits = httpx.Limits(max_connections=BATCH)
    client = httpx.AsyncClient(base_url=ring.url, timeout=LIMIT_S, limits=limits)
    num_asked = 0

    files = {
        GOOD_FILE: upload(ring, b"\n".join(LINES)),
        ODD_FILE: upload(ring, b'{"custom_id": 5}\n\xff\n[]\n' + LINES[0] * 2),
    }

    async def ask_all(requests: list[tuple[tuple[str, bytes, str], int]]) -> None:
        asking = []
        for (path, body, kind), leaves in requests:
            for name, file_id in files.items():
                body = body.replace(name.encode(), file_id.encode())  # noqa: PLW2901
            asking.append(ask_http(client, path, body, kind, leaves=leaves == 0))
        await asyncio.gather(*asking)

    @settings(max_examples=NUM_HTTP_BATCHES, **FUZZ)
    @given(st.lists(st.tuples(http_requests(), st.integers(0, 12)), min_size=BATCH, max_size=BATCH))
    def run(requests: list[tuple[tuple[str, bytes, str], int]]) -> None:
        nonlocal num_asked
        runner.run(ask_all(requests))
        num_asked += len(requests)

    run()
    runner.run(client.aclose())
    assert num_asked >= NUM_HTTP_BATCHES * BATCH
    check_left_behind(ring)


# ---- agents


@pytest.fixture(scope="module")
def agents_ring(start_ring: StartRing, tmp_path_factory: pytest.TempPathFactory) -> RunningRing:
    """It knows how calls and reasoning are written."""
    template = tmp_path_factory.mktemp("template") / "chat.jinja"
    template.write_text(TEMPLATE)
    options = {"runner": "sim", "sim_base_ms": 0.2, "sim_token_ms": 0, "max_model_len": AGENTS_CONTEXT}
    flags = [flag for name, value in options.items() for flag in ("--worker-set", f"{name}={value}")]
    known = {"chat_template": template, "tool_parser": "hermes", "reasoning_parser": "qwen3"}
    flags += [flag for name, value in known.items() for flag in ("--frontend-set", f"{name}={value}")]
    return start_ring(*flags)


async def watch(client: httpx.AsyncClient, slowest: list[float]) -> None:
    """Asks again and again whether the frontend lives: an event loop that is blocked does not answer."""
    while True:
        asked = time.monotonic()
        assert (await client.get("/live")).status_code == 200
        slowest[0] = max(slowest[0], time.monotonic() - asked)
        await asyncio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(300 * SCALE)
def test_agents(agents_ring: RunningRing, runner: asyncio.Runner) -> None:
    """Calls, reasoning and histories, whole and damaged: one end for each that is accepted, an error of the caller for
    the others, and an event loop that goes on."""
    limits = httpx.Limits(max_connections=BATCH + 1)
    client = httpx.AsyncClient(base_url=agents_ring.url, timeout=LIMIT_S, limits=limits)
    slowest = [0.0]

    async def ask_all(requests: list[tuple[tuple[str, bytes], int]]) -> None:
        watching = asyncio.create_task(watch(client, slowest))
        await asyncio.gather(*(ask_http(client, *asked, leaves=leaves == 0) for asked, leaves in requests))
        assert not watching.done() or watching.result() is None
        watching.cancel()

    @settings(max_examples=NUM_AGENTS_BATCHES, **FUZZ)
    @given(st.lists(st.tuples(agent_requests(), st.integers(0, 12)), min_size=BATCH, max_size=BATCH))
    def run(requests: list[tuple[tuple[str, bytes], int]]) -> None:
        runner.run(ask_all(requests))

    run()
    runner.run(client.aclose())
    check_left_behind(agents_ring)
    assert slowest[0] < LIMIT_S / 2, "the event loop was blocked"


# ---- gRPC


async def ask_grpc(stub: Any, fields: dict[str, Any], extra: bytes, leaves: bool) -> None:
    message = frontend_pb2.GenerateRequest(**fields)
    call = stub.Generate(frontend_pb2.GenerateRequest.FromString(message.SerializeToString() + extra))
    finished: list[int] = []
    try:
        async with asyncio.timeout(LIMIT_S):
            async for response in call:
                if leaves:
                    call.cancel()
                finished += [response.index] * response.HasField("finished")
                assert response.finished.error.code != "InternalError", (fields, response)
    except grpc.aio.AioRpcError as error:
        assert error.code() in FINE_GRPC, (fields, error)
        assert error.details()
    except asyncio.CancelledError:
        assert leaves
    else:
        assert sorted(finished) == list(range(fields.get("n") or 1)), fields


@pytest.mark.slow
@pytest.mark.timeout(300 * SCALE)
def test_grpc(ring: RunningRing, runner: asyncio.Runner) -> None:
    async def connect() -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(ring.grpc)

    channel = runner.run(connect())
    stub: Any = GenerationServiceStub(channel)
    num_asked = 0

    async def ask_all(requests: list[tuple[dict[str, Any], bytes, int]]) -> None:
        calls = (ask_grpc(stub, fields, extra, leaves == 0) for fields, extra, leaves in requests)
        await asyncio.gather(*calls)

    async def ask_tokens(text: str) -> None:
        known = await stub.Tokenize(frontend_pb2.TokenizeRequest(text=text))
        back = await stub.Detokenize(frontend_pb2.DetokenizeRequest(token_ids=known.token_ids))
        assert back.text == text

    unknown = st.sampled_from([b"", b"", b"", b"\xc0\x3e\x01"])

    @settings(max_examples=NUM_GRPC_BATCHES, **FUZZ)
    @given(
        st.lists(st.tuples(GRPC_REQUESTS, unknown, st.integers(0, 12)), min_size=BATCH, max_size=BATCH),
        PROTO_TEXTS,
    )
    def run(requests: list[tuple[dict[str, Any], bytes, int]], text: str) -> None:
        nonlocal num_asked
        runner.run(ask_all(requests))
        runner.run(ask_tokens(text))
        num_asked += len(requests)

    run()
    runner.run(channel.close())
    assert num_asked >= NUM_GRPC_BATCHES * BATCH
    check_left_behind(ring)
