"""Every sampling parameter that a client may send reaches the worker as it was sent, by every face: a copy of one that
is forgotten anywhere on the way shows here."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from frontend_svc.server import Frontend
from signalbox.links import rpc
from signalbox.v1 import frontend_pb2, generation_pb2
from signalbox.v1.frontend_pb2_grpc import GenerationServiceStub
from tests.frontend_svc.scripted_cluster import Cluster

SENT: dict[str, Any] = {
    "temperature": 0.5,
    "top_k": 4,
    "top_p": 0.5,
    "min_p": 0.25,
    "seed": 11,
    "max_tokens": 7,
    "min_tokens": 1,
    "stop_token_ids": [3, 5],
    "ignore_eos": True,
    "logprobs": 2,
    "prompt_logprobs": 1,
    "repetition_penalty": 1.5,
    "frequency_penalty": 0.5,
    "presence_penalty": -0.5,
    "logit_bias": {7: -100.0},
}
"""None of them is a default; all are the same in any float."""
ELSEWHERE = {"stop", "include_stop_str_in_output", "bad_words", "structured_output"}
"""The frontend's own, or sent in another form; they have tests of their own."""


def test_no_parameter_is_left_out_here() -> None:
    assert set(SENT) | ELSEWHERE >= {field.name for field in generation_pb2.SamplingParams.DESCRIPTOR.fields}


async def arrived(cluster: Cluster) -> dict[str, Any]:
    """What the worker is given, by name."""
    submit = await cluster.scheduler.next("submit")
    sampling = generation_pb2.RequestPayload.FromString(submit.payload).sampling
    values = {name: getattr(sampling, name) for name in SENT}
    return values | {"stop_token_ids": list(sampling.stop_token_ids), "logit_bias": dict(sampling.logit_bias)}


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_over_http(http: httpx.AsyncClient, cluster: Cluster, path: str) -> None:
    cluster.serve(lambda payload: [9])
    body = SENT | {"model": "toy", "logit_bias": {"7": -100}}
    if path == "/v1/completions":
        body["prompt"] = "the"
    else:
        body |= {"messages": [{"role": "user", "content": "x"}], "logprobs": True, "top_logprobs": 2}
    answer = await http.post(path, json=body)
    assert answer.status_code != 400, answer.text  # the scripted worker has no log-probabilities to send
    assert await arrived(cluster) == SENT


async def test_over_grpc(frontend: Frontend, cluster: Cluster) -> None:
    cluster.serve(lambda payload: [9])
    async with rpc.channel(f"127.0.0.1:{frontend.grpc_port}") as channel:
        stub: Any = GenerationServiceStub(channel)
        sampling = generation_pb2.SamplingParams(**SENT)
        call = stub.Generate(frontend_pb2.GenerateRequest(text="the", sampling=sampling))
        async for _ in call:
            pass
    assert await arrived(cluster) == SENT
