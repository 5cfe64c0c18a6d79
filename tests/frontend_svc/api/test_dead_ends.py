"""An output that no token could follow ends with a finish reason of its own on every face, and never with an error."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import grpc
import httpx
import pytest

from signalbox.protocol.generation import _finished_of
from signalbox.v1 import frontend_pb2, generation_pb2
from signalbox.v1.frontend_pb2_grpc import GenerationServiceStub
from tests.frontend_svc.scripted_cluster import Cluster, Row
from tests.frontend_svc.vllm_calls import ask_router, ask_smg

WHY = "structured_output and bad_words: no token can follow output token 2"
ERROR = generation_pb2.Error(code="DeadEndError", message=WHY, field="structured_output")
MESSAGES = [{"role": "user", "content": "hi"}]
FACES: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("/v1/chat/completions", {"messages": MESSAGES}, ("choices", "finish_reason")),
    ("/v1/completions", {"prompt": "the"}, ("choices", "finish_reason")),
    ("/v1/messages", {"messages": MESSAGES, "max_tokens": 9, "model": "toy"}, ("stop_reason",)),
    ("/v1/responses", {"input": "hi"}, ("incomplete_details", "reason")),
]


async def end_dead(cluster: Cluster) -> None:
    """The worker makes two tokens, and knows of no third one."""
    ref = (await cluster.scheduler.next("submit")).ref
    cluster.worker.emit(Row(ref.attempt, 0, [9]))
    cluster.worker.emit(Row(ref.attempt, 1, [10], generation_pb2.FINISH_REASON_ERROR, ERROR))


def reason_in(answer: Any, path: tuple[str, ...]) -> Any:
    """What stands at `path`; of a list, in its first item."""
    for name in path:
        answer = answer[name]
        answer = answer[0] if isinstance(answer, list) else answer
    return answer


@pytest.mark.parametrize(
    ("path", "body", "place"), FACES, ids=lambda value: value if isinstance(value, str) else ""
)
async def test_a_whole_answer(
    http: httpx.AsyncClient, cluster: Cluster, path: str, body: dict[str, Any], place: tuple[str, ...]
) -> None:
    answering = asyncio.create_task(http.post(path, json=body, timeout=60))
    await end_dead(cluster)
    answer = await answering
    assert answer.status_code == 200
    assert reason_in(answer.json(), place) == "dead_end"
    usage = answer.json()["usage"]
    assert usage.get("completion_tokens", usage.get("output_tokens")) == 2
    if "choices" in answer.json():
        assert answer.json()["choices"][0]["stop_reason"] == WHY


@pytest.mark.parametrize(
    ("path", "body", "place"), FACES, ids=lambda value: value if isinstance(value, str) else ""
)
async def test_a_stream(
    http: httpx.AsyncClient, cluster: Cluster, path: str, body: dict[str, Any], place: tuple[str, ...]
) -> None:
    answering = asyncio.create_task(http.post(path, json=body | {"stream": True}, timeout=60))
    await end_dead(cluster)
    text = (await answering).text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    assert not [event for event in events if event.get("error")]
    assert '"dead_end"' in text
    assert "max_tokens" not in text.split("message_start")[-1]
    assert 'max_output_tokens"}' not in text


async def test_over_grpc(channel: grpc.aio.Channel, cluster: Cluster) -> None:
    call = GenerationServiceStub(channel).Generate(frontend_pb2.GenerateRequest(model="toy", text="the"))
    await end_dead(cluster)
    finished = [response async for response in call][-1].finished
    assert finished.reason == generation_pb2.FINISH_REASON_DEAD_END
    assert (finished.dead_end, finished.HasField("error"), finished.num_output_tokens) == (WHY, False, 2)
    assert await call.code() is grpc.StatusCode.OK
    assert _finished_of(finished).dead_end == WHY


async def test_routers_are_told_an_abort_and_no_error(router: Any, smg: Any, cluster: Cluster) -> None:
    call = router.GenerateStream(ask_router())
    await end_dead(cluster)
    output = [response async for response in call][-1].outputs
    assert output.finish_info.finish_reason == output.finish_info.ABORTED
    call = smg.Generate(ask_smg())
    await end_dead(cluster)
    assert [response async for response in call][-1].complete.finish_reason == "abort"
