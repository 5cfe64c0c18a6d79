"""The faces for vllm-router and smg, over real sockets and against a scripted cluster."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import zipfile
from array import array
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from frontend_svc.config import FrontendSettings
from frontend_svc.server import Frontend
from frontend_svc.tokenizer import Tokenizer
from frontend_svc.vllm_model_facts import read_model_facts
from signalbox import rpc
from signalbox.errors import StartupError
from signalbox.v1 import generation_pb2
from signalbox.vllm import common_pb2 as common
from signalbox.vllm import control_pb2 as control
from signalbox.vllm import engine_pb2 as engine
from signalbox.vllm import inference_pb2 as inference
from signalbox.vllm.control_pb2_grpc import ControlStub
from signalbox.vllm.engine_pb2_grpc import VllmEngineStub
from signalbox.vllm.inference_pb2_grpc import InferenceStub
from tests.frontend_svc.helpers import character_ids, until
from tests.frontend_svc.scripted_cluster import Cluster, Row

STOP, LENGTH = generation_pb2.FINISH_REASON_STOP, generation_pb2.FINISH_REASON_LENGTH


@pytest.fixture
async def channel(frontend: Frontend) -> AsyncIterator[grpc.aio.Channel]:
    async with rpc.channel(f"127.0.0.1:{frontend.grpc_port}") as channel:
        yield channel


@pytest.fixture
def router(channel: grpc.aio.Channel) -> Any:
    return InferenceStub(channel)


@pytest.fixture
def smg(channel: grpc.aio.Channel) -> Any:
    return VllmEngineStub(channel)


def ask_router(**fields: Any) -> inference.GenerateRequest:
    return inference.GenerateRequest(**({"token_ids": {"ids": [7, 8, 9]}} | fields))


def ask_smg(**fields: Any) -> engine.GenerateRequest:
    return engine.GenerateRequest(**({"tokenized": {"input_ids": [7, 8, 9]}, "stream": True} | fields))


async def refusal(call: Any) -> tuple[grpc.StatusCode, str, str]:
    """Status, field and sentence of a call that is refused before its first message."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    trailing = dict(caught.value.trailing_metadata())
    return caught.value.code(), str(trailing["signalbox-field"]), caught.value.details() or ""


def fields_of(message: Descriptor, path: str = "") -> list[tuple[str, FieldDescriptor]]:
    """Every field that a request can set, by its path; messages that are refused as a whole count as one."""
    found = []
    for field in message.fields:
        inner = field.message_type
        is_open = inner is not None and inner.fields and not field.is_repeated
        found += fields_of(inner, f"{path}{field.name}.") if is_open else [(f"{path}{field.name}", field)]
    return found


def with_field(request: Any, path: str, field: FieldDescriptor) -> Any:
    """The request with that field set to something that is not its default."""
    *parents, name = path.split(".")
    for parent in parents:
        request = getattr(request, parent)
    if field.message_type is not None:
        value = getattr(request, name).add() if field.is_repeated else getattr(request, name)
        value.MergeFromString(b"\x08\x01")  # something inside, as a router would have
    elif field.is_repeated:
        getattr(request, name).append(1)
    else:
        texts = {FieldDescriptor.CPPTYPE_STRING: "x", FieldDescriptor.CPPTYPE_BOOL: True}
        setattr(request, name, texts.get(field.cpp_type, 1))
    return request


UNSERVED_BY_ROUTER_FACE = {
    "truncate_prompt_tokens", "media", "lora_name", "watermarking", "decoding.allowed_token_ids",
    "response.prompt_token_ids", "response.prompt_logprobs", "response.prompt_candidates",
    "response.output_logprobs", "response.output_candidates", "kv.bypass_prefix_cache", "kv.kv_transfer_params",
    "kv.ec_transfer_params",
}  # fmt: skip
UNSERVED_BY_SMG_FACE = {
    "kv_transfer_params", "mm_inputs", "extra_mm_inputs", "kv_transfer_params_json", "data_parallel_rank",
    "media_refs", "sampling_params.prompt_logprobs", "sampling_params.truncate_prompt_tokens",
}  # fmt: skip


def test_the_lists_below_name_real_fields() -> None:
    assert {path for path, _ in fields_of(inference.GenerateRequest.DESCRIPTOR)} > UNSERVED_BY_ROUTER_FACE
    assert {path for path, _ in fields_of(engine.GenerateRequest.DESCRIPTOR)} > UNSERVED_BY_SMG_FACE


@pytest.mark.parametrize("path", sorted(UNSERVED_BY_ROUTER_FACE))
async def test_the_router_face_refuses_by_name(router: Any, path: str) -> None:
    request = ask_router()
    with_field(request, path, dict(fields_of(request.DESCRIPTOR))[path])
    status, field, sentence = await refusal(router.GenerateStream(request))
    assert (status, field) == (grpc.StatusCode.INVALID_ARGUMENT, path)
    assert path in sentence


@pytest.mark.parametrize("path", sorted(UNSERVED_BY_SMG_FACE))
async def test_the_smg_face_refuses_by_name(smg: Any, path: str) -> None:
    request = ask_smg()
    with_field(request, path, dict(fields_of(request.DESCRIPTOR))[path])
    status, field, sentence = await refusal(smg.Generate(request))
    assert (status, field) == (grpc.StatusCode.INVALID_ARGUMENT, path)
    assert path in sentence


async def test_fields_of_the_future_are_not_ignored(router: Any, smg: Any) -> None:
    unknown = bytes([1000 << 3 & 0x7F | 0x80, 1000 << 3 >> 7, 1])
    later = inference.GenerateRequest.FromString(ask_router().SerializeToString() + unknown)
    assert (await refusal(router.GenerateStream(later)))[1] == "1000"
    params = engine.SamplingParams.FromString(unknown)
    assert (await refusal(smg.Generate(ask_smg(sampling_params=params))))[1] == "sampling_params.1000"


BAD_TO_ROUTER_FACE: list[tuple[dict[str, Any], str]] = [
    ({"token_ids": None}, "prompt"),
    ({"model": "gpt"}, "model"),
    ({"token_ids": {"ids": [99_999]}}, "token_ids"),
    ({"token_ids": {"ids": [7] * 250}}, "token_ids"),
    ({"temperature": -1}, "temperature"),
    ({"sampling": {"top_p": 2}}, "top_p"),
    ({"sampling": {"seed": -1}}, "seed"),
    ({"sampling": {"num_sequences": 2}}, "sampling.num_sequences"),
    ({"stopping": {"max_new_tokens": 5000}}, "max_new_tokens"),
    ({"decoding": {"regex": ""}}, "decoding.regex"),
    ({"decoding": {"choice": {}}}, "decoding.choice"),
    ({"response": {"skip_special_tokens": False}}, "response.skip_special_tokens"),
    ({"priority": 5000}, "priority"),
]


async def test_the_router_face_names_what_is_wrong(router: Any) -> None:
    for bad, name in BAD_TO_ROUTER_FACE:
        status, field, _ = await refusal(router.GenerateStream(ask_router(**bad)))
        assert (status, field) == (grpc.StatusCode.INVALID_ARGUMENT, name)
    ranked = router.GenerateStream(ask_router(), metadata=(("x-data-parallel-rank", "1"),))
    assert (await refusal(ranked))[:2] == (grpc.StatusCode.INVALID_ARGUMENT, "x-data-parallel-rank")


BAD_TO_SMG_FACE: list[tuple[dict[str, Any], str]] = [
    ({"tokenized": None}, "input"),
    ({"tokenized": {"input_ids": [99_999]}}, "tokenized.input_ids"),
    ({"sampling_params": {"n": 129}}, "sampling_params.n"),
    ({"sampling_params": {"logprobs": -1}}, "sampling_params.logprobs"),
    ({"sampling_params": {"max_tokens": 0}}, "sampling_params.max_tokens"),
    ({"sampling_params": {"choice": {"choices": [""]}}}, "sampling_params.choice"),
    ({"data_parallel_rank": 1}, "data_parallel_rank"),
]


async def test_the_smg_face_names_what_is_wrong(smg: Any) -> None:
    for bad, name in BAD_TO_SMG_FACE:
        status, field, _ = await refusal(smg.Generate(ask_smg(**bad)))
        assert (status, field) == (grpc.StatusCode.INVALID_ARGUMENT, name)


async def test_what_the_scheduler_gets_of_the_router(router: Any, cluster: Cluster) -> None:
    request = ask_router(
        request_id="mine",
        sampling={"top_k": 3, "top_p": 0.5, "min_p": 0.25, "seed": 11, "num_sequences": 1},
        decoding={"presence_penalty": 0.5, "repetition_penalty": 1.5, "logit_bias": {4: 1.5}},
        stopping={"max_new_tokens": 9, "min_new_tokens": 2, "stop_token_ids": [5], "ignore_eos": True},
        kv={"cache_salt": "s"},
        priority=-3,
        session_id="a hint",
        watermarking=False,
    )
    call = router.GenerateStream(request)
    submit = await cluster.scheduler.next("submit")
    payload = generation_pb2.RequestPayload.FromString(submit.payload)
    sampling = payload.sampling
    assert list(array("i", payload.token_ids)) == [7, 8, 9]
    assert (submit.ref.request_id, submit.meta.max_tokens, submit.meta.priority) == ("mine", 9, -3)
    assert (sampling.top_k, sampling.top_p, sampling.min_p, sampling.seed) == (3, 0.5, 0.25, 11)
    assert (sampling.presence_penalty, sampling.repetition_penalty) == (0.5, 1.5)
    assert (sampling.min_tokens, list(sampling.stop_token_ids), sampling.ignore_eos) == (2, [5], True)
    assert dict(sampling.logit_bias) == {4: 1.5}
    assert sampling.HasField("temperature"), "unset is 0 on this face, and 1 on ours"
    assert sampling.temperature == 0
    call.cancel()


async def test_unset_fields_leave_the_defaults(smg: Any, cluster: Cluster) -> None:
    call = smg.Generate(ask_smg())
    submit = await cluster.scheduler.next("submit")
    sampling = generation_pb2.RequestPayload.FromString(submit.payload).sampling
    assert submit.meta.max_tokens == 200 - 3
    for name in ("temperature", "top_p", "repetition_penalty", "logprobs"):
        assert not sampling.HasField(name), name
    call.cancel()


async def test_the_router_gets_prompt_info_first_and_finish_info_last(
    router: Any, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    ids = character_ids(tokenizer, "abc")
    cluster.serve(lambda payload: ids, reason=LENGTH)
    request = ask_router(response={"output_token_ids": True})
    responses = [response async for response in router.GenerateStream(request)]
    assert responses[0].prompt_info.num_prompt_tokens == 3
    assert [response.HasField("prompt_info") for response in responses].count(True) == 1
    outputs = [response.outputs for response in responses[1:]]
    assert "".join(output.text for output in outputs) == "abc"
    assert [token for output in outputs for token in output.token_ids] == ids
    assert sum(output.num_tokens for output in outputs) == 3
    assert [output.HasField("finish_info") for output in outputs].index(True) == len(outputs) - 1
    finish = outputs[-1].finish_info
    assert (finish.num_output_tokens, finish.finish_reason) == (3, inference.FinishInfo.LENGTH)
    assert finish.WhichOneof("stop_reason") is None


async def test_a_text_is_a_prompt_too(router: Any, smg: Any, cluster: Cluster, tokenizer: Tokenizer) -> None:
    num_tokens = len(tokenizer.fast.encode("the fox").ids)
    cluster.serve(lambda payload: [9], reason=LENGTH)
    request = inference.GenerateRequest(text="the fox")
    assert (await router.GenerateStream(request).read()).prompt_info.num_prompt_tokens == num_tokens
    request = engine.GenerateRequest(text="the fox")
    assert (await smg.Generate(request).read()).complete.prompt_tokens == num_tokens


async def test_output_is_sent_as_asked(router: Any, cluster: Cluster, tokenizer: Tokenizer) -> None:
    cluster.serve(lambda payload: character_ids(tokenizer, "abc"), reason=LENGTH)
    only_count = ask_router(response={"output_text": False, "skip_special_tokens": False})
    outputs = [response.outputs async for response in router.GenerateStream(only_count)]
    assert not any(output.text or output.token_ids for output in outputs)
    assert sum(output.num_tokens for output in outputs) == 3


@pytest.mark.parametrize(
    ("stopping", "text", "reason"),
    [
        ({"stop_strings": ["END"]}, "ab", ("stop_string", "END")),
        ({"stop_strings": ["END"], "include_stop_strings": True}, "abEND", ("stop_string", "END")),
        ({"stop_token_ids": ["D"]}, "abEN", ("stop_token_id", "D")),
        ({"stop_token_ids": ["D"], "include_stop_strings": True}, "abEND", ("stop_token_id", "D")),
        ({}, "abEND", (None, None)),
    ],
)
async def test_what_stopped_is_named_and_hidden_unless_wanted(
    router: Any,
    cluster: Cluster,
    tokenizer: Tokenizer,
    stopping: dict[str, Any],
    text: str,
    reason: tuple[str | None, str | None],
) -> None:
    """The worker ends the request at the last token, which the request calls a stop token or not."""
    ids = character_ids(tokenizer, "abEND")
    cluster.serve(lambda payload: ids, reason=STOP)
    if "stop_token_ids" in stopping:
        stopping = stopping | {"stop_token_ids": ids[-1:]}
    responses = [response async for response in router.GenerateStream(ask_router(stopping=stopping))]
    assert "".join(response.outputs.text for response in responses) == text
    finish = responses[-1].outputs.finish_info
    assert finish.finish_reason == inference.FinishInfo.STOP
    name, value = reason
    assert finish.WhichOneof("stop_reason") == name
    if name is not None:
        assert getattr(finish, name) == (value if name == "stop_string" else ids[-1])


async def test_the_end_of_sequence_is_named(router: Any, cluster: Cluster, tokenizer: Tokenizer) -> None:
    ids = [*character_ids(tokenizer, "ab"), tokenizer.eos_token_id]
    cluster.serve(lambda payload: ids, reason=STOP)
    responses = [response async for response in router.GenerateStream(ask_router())]
    assert "".join(response.outputs.text for response in responses) == "ab"
    assert responses[-1].outputs.finish_info.WhichOneof("stop_reason") == "eos_token_id"
    assert responses[-1].outputs.finish_info.eos_token_id == tokenizer.eos_token_id


@pytest.mark.parametrize("stream", [True, False])
async def test_smg_gets_chunks_and_then_the_whole(
    smg: Any, cluster: Cluster, tokenizer: Tokenizer, stream: bool
) -> None:
    ids = character_ids(tokenizer, "abcd")
    cluster.serve(lambda payload: ids, reason=LENGTH)
    responses = [response async for response in smg.Generate(ask_smg(stream=stream))]
    *chunks, last = responses
    assert last.WhichOneof("response") == "complete"
    assert [token for item in chunks for token in item.chunk.token_ids] == (ids if stream else [])
    assert sum(item.chunk.completion_tokens for item in chunks) == (4 if stream else 0)
    complete = last.complete
    whole = list(chunks[-1].chunk.token_ids) if stream else ids
    assert (list(complete.output_ids), complete.completion_tokens) == (whole, len(whole))
    assert (complete.finish_reason, complete.prompt_tokens) == ("length", 3)
    assert complete.WhichOneof("matched_stop") is None


@pytest.mark.parametrize("stream", [True, False])
async def test_smg_gets_each_choice(smg: Any, cluster: Cluster, tokenizer: Tokenizer, stream: bool) -> None:
    texts = ("abc", "de")

    def output(payload: generation_pb2.RequestPayload) -> list[int]:
        return character_ids(tokenizer, texts[payload.choice_index])

    cluster.serve(output, reason=LENGTH)
    request = ask_smg(stream=stream, sampling_params={"n": 2})
    completes, tokens = {}, {0: [], 1: []}
    async for response in smg.Generate(request):
        if response.HasField("chunk"):
            tokens[response.chunk.index] += response.chunk.token_ids
        else:
            assert response.complete.index not in completes
            completes[response.complete.index] = response.complete
    if not stream:
        tokens = {index: list(complete.output_ids) for index, complete in completes.items()}
    assert tokens == {index: character_ids(tokenizer, text) for index, text in enumerate(texts)}
    assert sorted(completes) == [0, 1]


async def test_smg_is_told_what_stopped(smg: Any, cluster: Cluster, tokenizer: Tokenizer) -> None:
    ids = character_ids(tokenizer, "abEND")
    cluster.serve(lambda payload: ids, reason=STOP)
    for params, name, value in (
        ({"stop": ["END"]}, "matched_stop_str", "END"),
        ({"stop_token_ids": ids[-1:]}, "matched_token_id", ids[-1]),
    ):
        responses = [item async for item in smg.Generate(ask_smg(sampling_params=params))]
        assert responses[-1].complete.finish_reason == "stop"
        assert getattr(responses[-1].complete, name) == value


async def test_smg_gets_logprobs(smg: Any, cluster: Cluster) -> None:
    item = generation_pb2.TokenLogprobs(logprob=-0.5, rank=1, top_token_ids=[9, 8], top_logprobs=[-0.5, -2])
    call = smg.Generate(ask_smg(stream=False, sampling_params={"logprobs": 2}))
    submit = await cluster.scheduler.next("submit")
    cluster.worker.emit(Row(submit.ref.attempt, 0, [9], LENGTH, logprobs=[item]))
    (last,) = [response async for response in call]
    logprobs = last.complete.output_logprobs
    assert (list(logprobs.token_ids), list(logprobs.token_logprobs)) == ([9], [-0.5])
    (top,) = logprobs.top_logprobs
    assert (list(top.token_ids), list(top.values)) == ([9, 8], [-0.5, -2])


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
    channel: grpc.aio.Channel, router: Any, smg: Any, cluster: Cluster
) -> None:
    first = router.GenerateStream(ask_router(request_id="first"))
    second = smg.Generate(ask_smg(request_id="second", sampling_params={"n": 2}))
    for _ in range(3):
        cluster.scheduler.place((await cluster.scheduler.next("submit")).ref)
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
    async with other_frontend(cluster) as channel:
        router: Any = InferenceStub(channel)
        assert (await refusal(router.GenerateStream(ask_router())))[1] == "response.output_text"
        cluster.serve(lambda payload: [9, 9], reason=LENGTH)
        ids = {"output_text": False, "output_token_ids": True}
        outputs = [item.outputs async for item in router.GenerateStream(ask_router(response=ids))]
        assert [token for output in outputs for token in output.token_ids] == [9, 9]
        smg: Any = VllmEngineStub(channel)
        status, _, sentence = await refusal(smg.GetTokenizer(common.GetTokenizerRequest()))
        assert (status, sentence) == (grpc.StatusCode.INVALID_ARGUMENT, "this server has no tokenizer")


async def test_the_faces_can_be_switched_off(cluster: Cluster) -> None:
    async with other_frontend(cluster, vllm_faces=False) as channel:
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
