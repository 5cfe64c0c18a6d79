"""The gRPC face, over real sockets and against a scripted cluster."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.links import rpc
from signalbox.protocol.enums import FinishReason
from signalbox.v1 import frontend_pb2, generation_pb2
from signalbox.v1.frontend_pb2_grpc import GenerationServiceStub
from tests.frontend_svc.helpers import character_ids, until
from tests.frontend_svc.scripted_cluster import Cluster, Row

TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.fixture
async def stub(frontend: Frontend) -> AsyncIterator[Any]:
    async with rpc.channel(f"127.0.0.1:{frontend.grpc_port}") as channel:
        yield GenerationServiceStub(channel)


def request(**fields: Any) -> frontend_pb2.GenerateRequest:
    return frontend_pb2.GenerateRequest(**({"text": "the fox"} | fields))


async def refusal(call: Any) -> tuple[grpc.StatusCode, str, str]:
    """Status, field and sentence of a call that is refused before its first message."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    error = caught.value
    metadata: Any = error.trailing_metadata()
    trailing = dict(metadata)
    return error.code(), str(trailing["signalbox-field"]), error.details() or ""


def test_our_finish_reasons_are_the_protocols() -> None:
    numbers = {value.name: value.number for value in generation_pb2.FinishReason.DESCRIPTOR.values}
    ours = {f"FINISH_REASON_{reason.name}": int(reason) for reason in FinishReason}
    assert numbers == ours | {"FINISH_REASON_UNSPECIFIED": 0}


async def test_generate(stub: Any, cluster: Cluster, tokenizer: Tokenizer) -> None:
    ids = tokenizer.fast.encode(" jumps 🚂").ids
    cluster.serve(lambda payload: ids, reason=generation_pb2.FINISH_REASON_STOP)
    responses = [response async for response in stub.Generate(request(request_id="mine"))]
    assert responses[0].accepted.request_id == "mine"
    assert responses[0].accepted.num_prompt_tokens == len(tokenizer.fast.encode("the fox").ids)
    assert [response.HasField("accepted") for response in responses].count(True) == 1
    assert "".join(response.text for response in responses) == " jumps 🚂"
    assert [token for response in responses for token in response.token_ids] == ids
    assert [response.HasField("finished") for response in responses].index(True) == len(responses) - 1
    finished = responses[-1].finished
    assert (finished.reason, finished.num_output_tokens) == (generation_pb2.FINISH_REASON_STOP, len(ids))


async def test_what_the_scheduler_gets(stub: Any, cluster: Cluster) -> None:
    sampling = generation_pb2.SamplingParams(
        temperature=0.5,
        top_k=3,
        seed=11,
        max_tokens=9,
        min_tokens=2,
        stop_token_ids=[5],
        stop=["x"],
        logprobs=0,
        logit_bias={4: 1.5},
    )
    call = stub.Generate(
        request(
            token_ids=frontend_pb2.TokenIds(ids=[7] * 35), sampling=sampling, priority=-3, cache_salt="s"
        ),
        timeout=30,
        metadata=(("traceparent", TRACEPARENT), ("tracestate", "k=v")),
    )
    submit = await cluster.scheduler.next("submit")
    meta, payload = submit.meta, generation_pb2.RequestPayload.FromString(submit.payload)
    assert (meta.model, meta.num_prompt_tokens, meta.max_tokens, meta.priority) == ("toy", 35, 9, -3)
    assert (meta.hash_block_size, len(meta.block_hashes), len(meta.root_hash)) == (16, 32, 16)
    assert (meta.traceparent, meta.tracestate) == (TRACEPARENT, "k=v")
    assert meta.age_ms < 5_000
    assert list(array("i", payload.token_ids)) == [7] * 35
    assert (payload.sampling.temperature, payload.sampling.top_k, payload.sampling.seed) == (0.5, 3, 11)
    assert payload.sampling.HasField("logprobs")
    assert dict(payload.sampling.logit_bias) == {4: 1.5}
    assert not payload.sampling.stop, "stop strings are the frontend's"
    call.cancel()


BAD_REQUESTS: list[tuple[dict[str, Any], str]] = [
    ({"text": ""}, "text"),
    ({"model": "gpt"}, "model"),
    ({"token_ids": {"ids": [99_999]}}, "token_ids"),
    ({"sampling": {"temperature": -1}}, "sampling.temperature"),
    ({"sampling": {"temperature": float("nan")}}, "sampling.temperature"),
    ({"sampling": {"prompt_logprobs": 21}}, "sampling.prompt_logprobs"),
    ({"sampling": {"bad_words": [" "]}}, "sampling.bad_words"),
    ({"sampling": {"bad_words": ["x"] * 65}}, "sampling.bad_words"),
    ({"sampling": {"structured_output": {}}}, "sampling.structured_output"),
    ({"sampling": {"structured_output": {"regex": ""}}}, "sampling.structured_output.regex"),
    ({"sampling": {"structured_output": {"json_object": False}}}, "sampling.structured_output.json_object"),
    ({"sampling": {"structured_output": {"choice": {"values": []}}}}, "sampling.structured_output.choice"),
    ({"n": 129}, "n"),
    ({"sampling": {"stop": [""]}}, "sampling.stop"),
    ({"sampling": {"max_tokens": 5000}}, "sampling.max_tokens"),
    ({"request_id": "a\tb"}, "request_id"),
]


async def test_bad_requests_are_refused_by_field(stub: Any) -> None:
    for bad, field in BAD_REQUESTS:
        status, named, _ = await refusal(stub.Generate(request(**bad)))
        assert (status, named) == (grpc.StatusCode.INVALID_ARGUMENT, field)


async def test_no_prompt(stub: Any) -> None:
    status, field, _ = await refusal(stub.Generate(frontend_pb2.GenerateRequest()))
    assert (status, field) == (grpc.StatusCode.INVALID_ARGUMENT, "prompt")


async def test_fields_of_the_future_are_not_ignored(stub: Any) -> None:
    number = 1000
    assert number not in frontend_pb2.GenerateRequest.DESCRIPTOR.fields_by_number
    tag = number << 3 | 0
    unknown = bytes([tag & 0x7F | 0x80, tag >> 7, 1])
    sent = frontend_pb2.GenerateRequest.FromString(request().SerializeToString() + unknown)
    status, field, _ = await refusal(stub.Generate(sent))
    assert (status, field) == (grpc.StatusCode.INVALID_ARGUMENT, "1000")


async def test_a_rejection_is_a_status(stub: Any, cluster: Cluster) -> None:
    cluster.scheduler.on_operation = lambda operation: cluster.scheduler.reject(
        operation.submit.ref, "ResourceExhaustedError", "the queue is full", "model"
    )
    assert await refusal(stub.Generate(request())) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "model",
        "the queue is full",
    )


async def test_the_same_id_twice(stub: Any, cluster: Cluster) -> None:
    first = stub.Generate(request(request_id="mine"))
    await cluster.scheduler.next("submit")
    status, field, _ = await refusal(stub.Generate(request(request_id="mine")))
    assert (status, field) == (grpc.StatusCode.ALREADY_EXISTS, "request_id")
    first.cancel()


async def test_cancelling_the_call_cancels_the_request(
    stub: Any, cluster: Cluster, frontend: Frontend
) -> None:
    call = stub.Generate(request())
    submit = await cluster.scheduler.next("submit")
    cluster.scheduler.place(submit.ref)
    assert (await call.read()).HasField("accepted")
    call.cancel()
    assert (await cluster.scheduler.next("cancel")).ref == submit.ref
    assert len(frontend.table) == 0


async def test_cancelling_before_placement(stub: Any, cluster: Cluster, frontend: Frontend) -> None:
    call = stub.Generate(request())
    submit = await cluster.scheduler.next("submit")
    call.cancel()
    assert (await cluster.scheduler.next("cancel")).ref == submit.ref
    assert len(frontend.table) == 0


async def test_a_deadline_cancels_the_request(stub: Any, cluster: Cluster, frontend: Frontend) -> None:
    call = stub.Generate(request(), timeout=0.2)
    await cluster.scheduler.next("submit")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await cluster.scheduler.next("cancel")
    await until(lambda: len(frontend.table) == 0)


async def test_an_error_after_acceptance_is_in_the_last_message(stub: Any, cluster: Cluster) -> None:
    call = stub.Generate(request())
    submit = await cluster.scheduler.next("submit")
    error = generation_pb2.Error(code="InternalError", message="the model failed")
    cluster.worker.emit(Row(submit.ref.attempt, 0, [9], generation_pb2.FINISH_REASON_ERROR, error))
    responses = [response async for response in call]
    assert responses[-1].finished.reason == generation_pb2.FINISH_REASON_ERROR
    assert responses[-1].finished.error == error
    assert await call.code() is grpc.StatusCode.OK


async def test_a_stop_string_is_a_finish(stub: Any, cluster: Cluster, tokenizer: Tokenizer) -> None:
    call = stub.Generate(request(sampling={"stop": ["END", "x"]}))
    submit = await cluster.scheduler.next("submit")
    for index, token in enumerate(character_ids(tokenizer, "abENDcd")):
        cluster.worker.emit(Row(submit.ref.attempt, index, [token]))
    responses = [response async for response in call]
    assert "".join(response.text for response in responses) == "ab"
    finished = responses[-1].finished
    assert (finished.reason, finished.stop, finished.num_output_tokens) == (1, "END", 5)
    finish = await cluster.scheduler.next("finish")
    assert finish.ref == submit.ref


async def test_logprobs_pass_through(stub: Any, cluster: Cluster) -> None:
    call = stub.Generate(request(sampling={"logprobs": 1}))
    submit = await cluster.scheduler.next("submit")
    logprobs = generation_pb2.TokenLogprobs(logprob=-0.5, rank=1, top_token_ids=[9], top_logprobs=[-0.5])
    cluster.worker.emit(Row(submit.ref.attempt, 0, [9], 2, logprobs=[logprobs]))
    responses = [response async for response in call]
    assert [item for response in responses for item in response.logprobs] == [logprobs]


async def test_a_loss_is_not_seen_by_the_client(stub: Any, cluster: Cluster, tokenizer: Tokenizer) -> None:
    ids = character_ids(tokenizer, "abcdef")
    call = stub.Generate(request())
    first = await cluster.scheduler.next("submit")
    cluster.worker.emit(Row(first.ref.attempt, 0, ids[:2]))
    responses = aiter(call)
    assert (await anext(responses)).HasField("accepted")
    assert (await anext(responses)).text == "ab"
    cluster.scheduler.lose(first.ref)
    second = await cluster.scheduler.next("submit")
    payload = generation_pb2.RequestPayload.FromString(second.payload)
    assert (second.ref.request_id, payload.num_prior_output_tokens) == (first.ref.request_id, 2)
    assert list(array("i", payload.token_ids))[-2:] == ids[:2]
    cluster.worker.emit(Row(first.ref.attempt, 2, [0]), Row(second.ref.attempt, 2, ids[2:], 2))
    assert "".join([response.text async for response in responses]) == "cdef"


async def test_list_models(stub: Any) -> None:
    models = (await stub.ListModels(frontend_pb2.ListModelsRequest())).models
    assert [(model.id, model.max_model_len, model.num_workers) for model in models] == [("toy", 200, 1)]


async def test_many_requests_share_a_batch(stub: Any, cluster: Cluster, tokenizer: Tokenizer) -> None:
    calls = [stub.Generate(request()) for _ in range(20)]
    refs = [(await cluster.scheduler.next("submit")).ref for _ in calls]
    ids = character_ids(tokenizer, "abcdefgh")
    for start in range(0, len(ids), 2):
        last = 2 if start + 2 == len(ids) else 0
        cluster.worker.emit(*(Row(ref.attempt, start, ids[start : start + 2], last) for ref in refs))

    async def text_of(call: Any) -> str:
        return "".join([response.text async for response in call])

    assert await asyncio.gather(*map(text_of, calls)) == ["abcdefgh"] * 20
