"""Every sampling parameter that a client may send reaches the worker as it was sent, by every face: a copy of one that
is forgotten anywhere on the way shows here."""

from __future__ import annotations

import contextlib
from typing import Any

import grpc
import httpx
import pytest

from frontend_svc.server import Frontend
from signalbox.links import rpc
from signalbox.protocol.sampling import TYPES, WORKERS
from signalbox.v1 import frontend_pb2, generation_pb2
from signalbox.v1.frontend_pb2_grpc import GenerationServiceStub
from tests.frontend_svc.scripted_cluster import Cluster
from tests.sampling_examples import examples

SENT = {name: value for name, value in examples().items() if name in WORKERS}


def test_the_table_has_every_field_of_the_message() -> None:
    fields = {field.name for field in generation_pb2.SamplingParams.DESCRIPTOR.fields}
    assert fields - {"structured_output"} == TYPES.keys() == examples().keys()


async def arrived(cluster: Cluster) -> dict[str, Any]:
    """What the worker is given, by name."""
    submit = await cluster.scheduler.next("submit")
    sampling = generation_pb2.RequestPayload.FromString(submit.payload).sampling
    values = {name: getattr(sampling, name) for name in SENT}
    lists = {name: list(value) for name, value in values.items() if isinstance(SENT[name], list)}
    return values | lists | {"logit_bias": dict(sampling.logit_bias)}


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_over_http(http: httpx.AsyncClient, cluster: Cluster, path: str) -> None:
    cluster.serve(lambda payload: [9])
    body = examples() | {"model": "toy", "logit_bias": {"7": -100}}
    if path == "/v1/completions":
        body["prompt"] = "the"
    else:
        body |= {"messages": [{"role": "user", "content": "x"}]}
        body |= {"logprobs": True, "top_logprobs": SENT["logprobs"]}
    answer = await http.post(path, json=body)
    assert answer.status_code != 400, answer.text  # the scripted worker has no log-probabilities to send
    assert await arrived(cluster) == SENT


async def test_over_grpc(frontend: Frontend, cluster: Cluster) -> None:
    cluster.serve(lambda payload: [9])
    async with rpc.channel(f"127.0.0.1:{frontend.grpc_port}") as channel:
        stub: Any = GenerationServiceStub(channel)
        sampling = generation_pb2.SamplingParams(**examples())
        call = stub.Generate(frontend_pb2.GenerateRequest(text="the", sampling=sampling))
        with contextlib.suppress(grpc.aio.AioRpcError):  # as above
            async for _ in call:
                pass
    assert await arrived(cluster) == SENT
