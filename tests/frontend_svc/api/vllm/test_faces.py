"""What the faces for vllm-router and smg do beside output, over real sockets and against a scripted cluster."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from frontend_svc.config import FrontendSettings
from frontend_svc.model_facts import read_model_facts
from frontend_svc.requests.sessions.session import SessionStatus
from frontend_svc.server import Frontend
from signalbox.errors import StartupError
from signalbox.links import rpc
from signalbox.v1 import generation_pb2
from signalbox.vllm import common_pb2 as common
from signalbox.vllm import control_pb2 as control
from signalbox.vllm import engine_pb2 as engine
from signalbox.vllm import inference_pb2 as inference
from signalbox.vllm.control_pb2_grpc import ControlStub
from signalbox.vllm.engine_pb2_grpc import VllmEngineStub
from signalbox.vllm.inference_pb2_grpc import InferenceStub
from tests.frontend_svc.helpers import until
from tests.frontend_svc.scripted_cluster import Cluster, Row
from tests.frontend_svc.vllm_calls import ask_router, ask_smg, refusal

STOP, LENGTH = generation_pb2.FINISH_REASON_STOP, generation_pb2.FINISH_REASON_LENGTH


async def test_a_form_reaches_the_scheduler(router: Any, smg: Any, cluster: Cluster) -> None:
    for start in (
        lambda: router.GenerateStream(ask_router(decoding={"regex": "[ab]+"})),
        lambda: smg.Generate(ask_smg(sampling_params={"regex": "[ab]+"})),
    ):
        call = start()
        submit = await asyncio.wait_for(cluster.scheduler.operations.get(), 30)
        payload = generation_pb2.RequestPayload.FromString(submit.submit.payload)
        assert submit.submit.meta.has_grammar
        assert payload.sampling.structured_output.regex == "[ab]+"
        call.cancel()
        await cluster.scheduler.next("cancel")


async def test_an_error_of_the_worker_is_a_status(router: Any, smg: Any, cluster: Cluster) -> None:
    error = generation_pb2.Error(code="InternalError", message="the model failed")
    for start in (lambda: router.GenerateStream(ask_router()), lambda: smg.Generate(ask_smg())):
        call = start()
        submit = await cluster.scheduler.next("submit")
        cluster.worker.emit(Row(submit.ref.attempt, 0, [9], generation_pb2.FINISH_REASON_ERROR, error))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in call:
                pass
        assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.INTERNAL, "the model failed")


async def test_cancelling_the_call_cancels_the_request(
    router: Any, smg: Any, cluster: Cluster, frontend: Frontend
) -> None:
    for start in (lambda: router.GenerateStream(ask_router()), lambda: smg.Generate(ask_smg())):
        call = start()
        submit = await cluster.scheduler.next("submit")
        call.cancel()
        assert (await cluster.scheduler.next("cancel")).ref == submit.ref
        assert len(frontend.table) == 0


async def test_abort_ends_the_requests_it_names(
    channel: grpc.aio.Channel, router: Any, smg: Any, cluster: Cluster, frontend: Frontend
) -> None:
    first = router.GenerateStream(ask_router(request_id="first"))
    second = smg.Generate(ask_smg(request_id="second", sampling_params={"n": 2}))
    for _ in range(3):
        cluster.scheduler.place((await cluster.scheduler.next("submit")).ref)
    # One that is cancelled before the frontend knows its place has no output to end.
    await until(lambda: all(session.status is SessionStatus.RUNNING for session in frontend.table))
    stub: Any = ControlStub(channel)
    await stub.Abort(control.AbortRequest(request_ids=["first", "unknown"]))
    responses = [response async for response in first]
    assert responses[-1].outputs.finish_info.finish_reason == inference.FinishInfo.ABORTED
    assert (await cluster.scheduler.next("cancel")).ref.request_id == "first"
    await smg.Abort(engine.AbortRequest(request_ids=["second"]))
    ends = [item.complete async for item in second if item.HasField("complete")]
    assert [end.finish_reason for end in ends] == ["abort"] * 2
    cancelled = {(await cluster.scheduler.next("cancel")).ref.request_id for _ in ends}
    assert cancelled == {"second", "second.1"}


async def test_health_is_readiness(smg: Any, cluster: Cluster, frontend: Frontend) -> None:
    assert (await smg.HealthCheck(engine.HealthCheckRequest())).healthy
    cluster.scheduler.break_link()
    await cluster.scheduler.server.grpc.stop(0)
    await until(lambda: not frontend.is_ready)
    answer = await smg.HealthCheck(engine.HealthCheckRequest())
    assert not answer.healthy
    assert answer.message


async def test_what_is_told_of_server_and_model(
    channel: grpc.aio.Channel, smg: Any, model_directory: Path
) -> None:
    stub: Any = ControlStub(channel)
    model = await stub.GetModelInfo(control.GetModelInfoRequest())
    assert (model.model_id, model.served_model_name) == (str(model_directory.resolve()), "toy")
    server = await stub.GetServerInfo(control.GetServerInfoRequest())
    assert (server.max_model_len, server.kv_block_size) == (200, 16)
    info = await smg.GetModelInfo(engine.GetModelInfoRequest())
    assert list(info.eos_token_ids) == [0], "the tokenizer's, as the files name none"
    assert (info.max_context_length, info.max_req_input_len) == (200, 199)
    assert info.tokenizer_path == str(model_directory.resolve())
    facts = await smg.GetServerInfo(engine.GetServerInfoRequest())
    assert (facts.data_parallel_size, facts.block_size, facts.is_paused) == (1, 16, False)
    assert facts.server_type.startswith("signalbox ")


async def test_loads_count_open_requests(smg: Any, cluster: Cluster) -> None:
    running, *others = [smg.Generate(ask_smg(request_id=f"r{index}")) for index in range(3)]
    refs = [(await cluster.scheduler.next("submit")).ref for _ in range(3)]
    (ref,) = [ref for ref in refs if ref.request_id == "r0"]
    cluster.worker.emit(Row(ref.attempt, 0, [9]))
    assert (await running.read()).HasField("chunk")
    (load,) = (await smg.GetLoads(engine.GetLoadsRequest())).loads
    assert (load.num_running_reqs, load.num_waiting_reqs, load.num_total_reqs) == (1, 2, 3)
    for call in (running, *others):
        call.cancel()


async def test_the_tokenizer_comes_as_an_archive(smg: Any, model_directory: Path) -> None:
    (model_directory / "model.safetensors").write_bytes(b"weights")
    (model_directory / "notes.json").write_text("{}")
    chunks = [chunk async for chunk in smg.GetTokenizer(common.GetTokenizerRequest())]
    data = b"".join(chunk.data for chunk in chunks)
    assert [chunk.sha256 for chunk in chunks][-1] == hashlib.sha256(data).hexdigest()
    assert not any(chunk.sha256 for chunk in chunks[:-1])
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert sorted(archive.namelist()) == ["tokenizer.json", "tokenizer_config.json"]
        assert archive.read("tokenizer.json") == (model_directory / "tokenizer.json").read_bytes()


async def test_without_a_tokenizer_only_token_ids_are_served(cluster: Cluster) -> None:
    async with other_frontend(cluster, vllm_faces=True) as channel:
        router: Any = InferenceStub(channel)
        assert (await refusal(router.GenerateStream(ask_router())))[1] == "response.output_text"
        cluster.serve(lambda payload: [9, 9], reason=LENGTH)
        ids = {"output_text": False, "output_token_ids": True}
        outputs = [item.outputs async for item in router.GenerateStream(ask_router(response=ids))]
        assert [token for output in outputs for token in output.token_ids] == [9, 9]
        smg: Any = VllmEngineStub(channel)
        status, _, sentence = await refusal(smg.GetTokenizer(common.GetTokenizerRequest()))
        assert (status, sentence) == (grpc.StatusCode.INVALID_ARGUMENT, "this server has no tokenizer")


async def test_the_faces_are_off_unless_they_are_asked_for(cluster: Cluster) -> None:
    """Whoever reaches them can abort requests by their ids."""
    async with other_frontend(cluster) as channel:
        smg: Any = VllmEngineStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await smg.HealthCheck(engine.HealthCheckRequest())
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@contextlib.asynccontextmanager
async def other_frontend(cluster: Cluster, **settings: Any) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a frontend without a tokenizer."""
    address = f"127.0.0.1:{cluster.scheduler_port}"
    frontend = Frontend(
        FrontendSettings(scheduler=address, http="127.0.0.1:0", grpc="127.0.0.1:0", drain_s=0.2, **settings)
    )
    await frontend.start()
    try:
        await until(lambda: frontend.is_ready)
        async with rpc.channel(f"127.0.0.1:{frontend.grpc_port}") as channel:
            yield channel
    finally:
        await frontend.stop()


def test_model_facts(tmp_path: Path) -> None:
    assert read_model_facts(tmp_path).eos_token_ids == ()
    config = {"model_type": "toy", "architectures": ["Toy"], "eos_token_id": 2, "bos_token_id": None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 5]}))
    facts = read_model_facts(tmp_path)
    assert (facts.model_type, facts.architectures, facts.eos_token_ids) == ("toy", ("Toy",), (2, 5))
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(StartupError, match=r"config\.json"):
        read_model_facts(tmp_path)
