"""What the faces for vllm-router and smg refuse, by name."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from signalbox.vllm import engine_pb2 as engine
from signalbox.vllm import inference_pb2 as inference
from tests.frontend_svc.vllm_calls import ask_router, ask_smg, refusal


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
