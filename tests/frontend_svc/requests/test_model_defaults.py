"""Defaults that a model brings: sampling, the length of an answer, and the token that ends a turn."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from frontend_svc.requests.model_defaults import NO_DEFAULTS, ModelDefaults, read_model_defaults
from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.client import Client
from signalbox.errors import StartupError
from tests.frontend_svc.guarded import Start
from tests.frontend_svc.helpers import STOP
from tests.frontend_svc.scripted_cluster import Cluster

QWEN = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "repetition_penalty": 1.05}
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def directory(model_directory: Path, tmp_path: Path) -> Path:
    """The toy model, with what Qwen has."""
    copy = tmp_path / "model"
    shutil.copytree(model_directory, copy)
    (copy / "generation_config.json").write_text(json.dumps(QWEN | {"max_new_tokens": 7}))
    return copy


def remember(cluster: Cluster, tokenizer: Tokenizer) -> list[Any]:
    """The payloads of all requests from now on."""
    payloads: list[Any] = []
    fox = tokenizer.fast.encode(" fox").ids

    def answer(payload: Any) -> list[int]:
        payloads.append(payload)
        return fox

    cluster.serve(answer, STOP)
    return payloads


def url_of(frontend: Frontend) -> str:
    return f"http://127.0.0.1:{frontend.http_port}"


def values(payload: Any) -> tuple[float, float, int, float, int]:
    sampling = payload.sampling
    numbers = (sampling.temperature, sampling.top_p, sampling.top_k, sampling.repetition_penalty)
    return tuple(round(value, 4) for value in (*numbers, sampling.max_tokens))  # type: ignore[return-value]


async def test_requests_have_the_models_defaults_and_their_own_values_win(
    cluster: Cluster, tokenizer: Tokenizer, directory: Path, start: Start
) -> None:
    payloads = remember(cluster, tokenizer)
    frontend = await start(model=directory, key_file=None)
    async with httpx.AsyncClient(base_url=url_of(frontend)) as http:
        await http.post("/v1/chat/completions", json=CHAT)
        assert values(payloads[-1]) == (0.6, 0.95, 20, 1.05, 7)
        mine = {"temperature": 0, "top_p": 1, "top_k": -1, "repetition_penalty": 1.0, "max_tokens": 9}
        await http.post("/v1/chat/completions", json=CHAT | mine)
        assert values(payloads[-1]) == (0, 1, 0, 1, 9)
        await http.post("/v1/completions", json={"prompt": "x"})
        assert values(payloads[-1]) == (0.6, 0.95, 20, 1.05, 16)
        shown = (await http.get("/v1/models")).json()["data"][0]["sampling_defaults"]
        assert shown == {**{name: QWEN[name] for name in QWEN if name != "do_sample"}, "max_tokens": 7}
    async with Client(f"127.0.0.1:{frontend.grpc_port}") as client:
        async for _ in client.generate("x", temperature=0.5):
            pass
    assert values(payloads[-1]) == (0.5, 0.95, 20, 1.05, 7)


async def test_the_models_defaults_can_be_left(
    cluster: Cluster, tokenizer: Tokenizer, directory: Path, start: Start
) -> None:
    payloads = remember(cluster, tokenizer)
    frontend = await start(model=directory, key_file=None, sampling_defaults="none")
    async with httpx.AsyncClient(base_url=url_of(frontend)) as http:
        await http.post("/v1/chat/completions", json=CHAT)
        assert not payloads[-1].sampling.HasField("temperature")
        assert (await http.get("/v1/models")).json()["data"][0]["sampling_defaults"] == {}


def test_what_cannot_be_used_is_left_out_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_model_defaults(tmp_path) is NO_DEFAULTS
    path = tmp_path / "generation_config.json"
    odd = {"temperature": None, "top_p": 0, "top_k": 2.5, "min_p": True, "max_new_tokens": "9"}
    path.write_text(json.dumps(odd | {"repetition_penalty": 1, "eos_token_id": 3}))
    assert read_model_defaults(tmp_path) == ModelDefaults({"repetition_penalty": 1.0})
    assert [record.args[1] for record in caplog.records if isinstance(record.args, tuple)] == [
        "top_p",
        "top_k",
        "min_p",
        "max_tokens",
    ]
    path.write_text("[]")
    with pytest.raises(StartupError, match="is not a JSON object"):
        read_model_defaults(tmp_path)


async def test_a_chat_ends_where_the_template_ends_a_turn(
    cluster: Cluster, tokenizer: Tokenizer, model_directory: Path, tmp_path: Path, start: Start
) -> None:
    """The token behind an assistant's text is a stop, whatever the files call the end of a sequence."""
    template = tmp_path / "template"
    template.write_text("{% for m in messages %}{{ m.content }}<bos>\n{% endfor %}")
    payloads = remember(cluster, tokenizer)
    frontend = await start(chat_template=template, key_file=None)
    bos = tokenizer.fast.token_to_id("<bos>")
    async with httpx.AsyncClient(base_url=url_of(frontend)) as http:
        for body, stops in (
            (CHAT, [bos]),
            (CHAT | {"stop_token_ids": [5]}, [5, bos]),
            (CHAT | {"ignore_eos": True}, []),
        ):
            answer = await http.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
            assert list(payloads[-1].sampling.stop_token_ids) == stops
        await http.post("/v1/completions", json={"prompt": "x"})
        assert list(payloads[-1].sampling.stop_token_ids) == []


async def test_more_tokens_than_fit_are_refused_in_openais_words_over_http(
    http: httpx.AsyncClient, frontend: Frontend
) -> None:
    room = frontend.directory.models[0].max_tokens
    for path, body, param in (
        ("/v1/chat/completions", CHAT | {"max_tokens": room}, "max_tokens"),
        ("/v1/chat/completions", CHAT | {"max_completion_tokens": room}, "max_completion_tokens"),
        ("/v1/completions", {"prompt": "x", "max_tokens": room}, "max_tokens"),
        ("/v1/completions", {"prompt": [5] * room}, "prompt"),
    ):
        answer = await http.post(path, json=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", param)
        assert f"maximum context length is {room} tokens" in error["message"]


async def test_without_a_limit_a_chat_has_the_room_that_is_left(
    http: httpx.AsyncClient, frontend: Frontend, cluster: Cluster, tokenizer: Tokenizer
) -> None:
    payloads = remember(cluster, tokenizer)
    room = frontend.directory.models[0].max_tokens
    used = (await http.post("/v1/chat/completions", json=CHAT)).json()["usage"]["prompt_tokens"]
    assert payloads[-1].sampling.max_tokens == room - used
    fits = await http.post("/v1/chat/completions", json=CHAT | {"max_tokens": room - used})
    assert fits.status_code == 200


async def test_over_grpc_they_are_cut(frontend: Frontend, cluster: Cluster, tokenizer: Tokenizer) -> None:
    payloads = remember(cluster, tokenizer)
    room = frontend.directory.models[0].max_tokens
    async with Client(f"127.0.0.1:{frontend.grpc_port}") as client:
        async for _ in client.generate([5, 6], max_tokens=room):
            pass
    assert payloads[-1].sampling.max_tokens == room - 2


async def test_an_unknown_model_is_not_found(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/chat/completions", json=CHAT | {"model": "gpt-9"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
