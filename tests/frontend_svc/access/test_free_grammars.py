"""Keys that are without regular expressions and grammars (AK10)."""

from __future__ import annotations

import argparse
from typing import Any

import grpc
import pytest

from frontend_svc.access.keys import read_keys
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.api_keys import make_key
from signalbox.cli.commands.machine import key as command
from signalbox.errors import PermissionDeniedError
from signalbox.vllm.engine_pb2_grpc import VllmEngineStub
from signalbox.vllm.inference_pb2_grpc import InferenceStub
from tests.frontend_svc.guarded import KeyRing, Start, ask, grpc_of, http_of
from tests.frontend_svc.helpers import serve_text
from tests.frontend_svc.scripted_cluster import Cluster
from tests.frontend_svc.vllm_calls import ask_router, ask_smg, refusal

GRAMMAR = 'root ::= "x"'
FREE: tuple[dict[str, Any], ...] = (
    {"guided_regex": "x"},
    {"guided_grammar": GRAMMAR},
    {"structured_outputs": {"regex": "x"}},
    {"structured_outputs": {"grammar": GRAMMAR}},
)
BOUND: tuple[dict[str, Any], ...] = (
    {"guided_json": {"type": "string"}},
    {"guided_choice": ["x"]},
    {"response_format": {"type": "json_object"}},
    {"structured_outputs": {"json": {"const": 1}}},
)


def field_of(form: dict[str, Any]) -> str:
    """The field's name as an error says it."""
    ((name, value),) = form.items()
    return f"{name}.{next(iter(value))}" if isinstance(value, dict) else name


@pytest.mark.parametrize("form", FREE, ids=field_of)
async def test_over_http_a_grammar_is_refused_by_its_field(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, ring: KeyRing, form: dict[str, Any]
) -> None:
    ring.add("bound", free_grammars=False)
    ring.add("free")
    guarded = await start()
    serve_text(cluster, tokenizer, "x")
    answer = await ask(guarded, ring.headers("bound"), **form)
    assert answer.status_code == 403 and answer.json()["error"]["param"] == field_of(form)
    assert "may not bring regular expressions or grammars" in answer.text
    assert (await ask(guarded, ring.headers("free"), **form)).status_code == 200
    chat = {"model": "toy", "messages": [{"role": "user", "content": "the"}], **form}
    async with http_of(guarded) as http:
        answer = await http.post("/v1/chat/completions", json=chat, headers=ring.headers("bound"))
    assert answer.status_code == 403 and answer.json()["error"]["param"] == field_of(form)


@pytest.mark.parametrize("form", BOUND, ids=lambda form: next(iter(form)))
async def test_what_is_no_grammar_is_served(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, ring: KeyRing, form: dict[str, Any]
) -> None:
    ring.add("bound", free_grammars=False)
    guarded = await start()
    serve_text(cluster, tokenizer, "x")
    assert (await ask(guarded, ring.headers("bound"), **form)).status_code == 200


@pytest.mark.parametrize("form", [{"regex": "x"}, {"grammar": GRAMMAR}], ids=lambda form: next(iter(form)))
async def test_over_grpc_too(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, ring: KeyRing, form: dict[str, str]
) -> None:
    ring.add("bound", free_grammars=False)
    guarded = await start()
    serve_text(cluster, tokenizer, "x")
    field = f"sampling.structured_output.{next(iter(form))}"
    async with grpc_of(guarded, ring.keys["bound"].text) as client:
        with pytest.raises(PermissionDeniedError, match=f"^{field}: this key") as refusal:
            await client.generate("the", structured_output=form).result()
        assert refusal.value.field == field


@pytest.mark.parametrize("form", [{"regex": "x"}, {"grammar": GRAMMAR}], ids=lambda form: next(iter(form)))
async def test_at_the_faces_of_routers_too(start: Start, ring: KeyRing, form: dict[str, str]) -> None:
    ring.add("bound", free_grammars=False)
    guarded = await start()
    metadata = ring.metadata("bound")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{guarded.grpc_port}") as channel:
        routed: Any = InferenceStub(channel)  # type: ignore[no-untyped-call]
        engine: Any = VllmEngineStub(channel)  # type: ignore[no-untyped-call]
        for call, path in (
            (routed.GenerateStream(ask_router(decoding=form), metadata=metadata), "decoding"),
            (engine.Generate(ask_smg(sampling_params=form), metadata=metadata), "sampling_params"),
        ):
            status, field, _ = await refusal(call)
            assert (status, field) == (grpc.StatusCode.PERMISSION_DENIED, f"{path}.{next(iter(form))}")


def test_the_command_writes_such_a_key(tmp_path: Any) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    made = make_key()
    line = command.make_line(made, parser.parse_args(["new", "--tenant", "guest", "--no-free-grammars"]))
    (tmp_path / "keys").write_text(line)
    assert not read_keys(tmp_path / "keys")[made.key_id].free_grammars
