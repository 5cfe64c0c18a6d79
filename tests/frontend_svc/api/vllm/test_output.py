"""Requests and outputs of the faces for vllm-router and smg, over real sockets and against a scripted cluster."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from frontend_svc.text.tokenizer import Tokenizer
from signalbox.v1 import generation_pb2
from signalbox.vllm import engine_pb2 as engine
from signalbox.vllm import inference_pb2 as inference
from tests.frontend_svc.helpers import character_ids
from tests.frontend_svc.scripted_cluster import Cluster, Row
from tests.frontend_svc.vllm_calls import ask_router, ask_smg

STOP, LENGTH = generation_pb2.FINISH_REASON_STOP, generation_pb2.FINISH_REASON_LENGTH


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
