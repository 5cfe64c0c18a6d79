"""Outputs that follow a form, through real processes: valid, the same whatever happens on the way, refused in time."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import grpc
import httpx
import jsonschema
import pytest

from signalbox.v1 import frontend_pb2, frontend_pb2_grpc
from tests.e2e.conftest import Launch, RunningRing, StartRing
from tests.e2e.outputs.test_options import SIM, workers_of
from tests.pairs import in_soak

PROMPT = "def read(path):\n"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 16},
        "size": {"type": "integer", "minimum": 0, "maximum": 4096},
        "tags": {"type": "array", "items": {"enum": ["old", "new", None]}, "maxItems": 3},
    },
    "required": ["name", "size", "tags"],
    "additionalProperties": False,
}
EMAIL = r"[a-z]{3,8}@[a-z]{2,5}\.(com|org)"
WORDS = r"([a-z_]{1,8} ){12,40}end"
NUM_REQUESTS = 10
SMALL = ("--dtype", "float32", "--num-blocks", "36", "--block-size", "16", "--max-num-batched-tokens", "48")


async def complete(http: httpx.AsyncClient, **options: Any) -> dict[str, Any]:
    """The one choice of a completion."""
    body = {"model": "demo", "prompt": PROMPT, "max_tokens": 300} | options
    response = await http.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    choice: dict[str, Any] = response.json()["choices"][0]
    return choice


def connect(ring: RunningRing) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=ring.url, timeout=90)


async def test_outputs_are_valid_greedy_and_drawn(ring: RunningRing) -> None:
    async with connect(ring) as http:
        draws: list[dict[str, Any]] = [{"temperature": 0}, *({"temperature": 1, "seed": s} for s in range(6))]
        objects = await asyncio.gather(*(complete(http, guided_json=SCHEMA, **draw) for draw in draws))
        emails = await asyncio.gather(*(complete(http, guided_regex=EMAIL, **draw) for draw in draws))
        chosen = await asyncio.gather(
            *(complete(http, guided_choice=["yes", "no"], **draw) for draw in draws)
        )
    for choice in objects:
        jsonschema.validate(json.loads(choice["text"]), SCHEMA)
    assert all(re.fullmatch(EMAIL, choice["text"]) for choice in emails)
    assert {choice["text"] for choice in chosen} <= {"yes", "no"}
    assert {choice["finish_reason"] for choice in (*objects, *emails, *chosen)} == {"stop"}
    assert len({choice["text"] for choice in objects}) > 1, "the model still chooses"


async def test_max_tokens_cuts_a_form_off(ring: RunningRing) -> None:
    async with connect(ring) as http:
        choice = await complete(http, guided_regex="[a-z]{200}", max_tokens=5, temperature=0)
    assert choice["finish_reason"] == "length" and re.fullmatch("[a-z]+", choice["text"])


@pytest.mark.parametrize(
    ("options", "field", "reason"),
    [
        ({"guided_regex": "("}, "guided_regex", "unclosed group"),
        ({"guided_json": {"type": "array", "uniqueItems": True}}, "guided_json", "uniqueItems"),
        ({"guided_grammar": "nonsense"}, "guided_grammar", "neither EBNF nor Lark"),
        (
            {"guided_grammar": "start: W\nW: ~/(.*a.{20}b.*)/ & /(a|b){100}/"},
            "guided_grammar",
            "takes too long",
        ),
        ({"guided_regex": "a", "min_tokens": 3}, "min_tokens", "guided_regex"),
        ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos", "guided_regex"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_form_that_cannot_be_followed_is_refused(
    ring: RunningRing, options: dict[str, Any], field: str, reason: str
) -> None:
    async with connect(ring) as http:
        refused = http.post("/v1/completions", json={"model": "demo", "prompt": "x", **options})
        served = complete(http, max_tokens=20, temperature=0)
        response, _ = await asyncio.gather(refused, served)
    error = response.json()["error"]
    assert response.status_code == 400, response.text
    assert error["param"] == field and field in error["message"] and reason in error["message"]


async def test_the_sim_runner_refuses_forms(start_ring: StartRing) -> None:
    ring = start_ring(*SIM, "--num-blocks", "512")
    async with connect(ring) as http:
        response = await http.post(
            "/v1/completions", json={"model": "demo", "prompt": "x", "guided_regex": "a"}
        )
    assert response.status_code == 400 and response.json()["error"]["code"] == "UnsupportedError"


@pytest.mark.slow
async def test_the_grpc_face_follows_and_refuses_forms(ring: RunningRing) -> None:
    async with grpc.aio.insecure_channel(ring.grpc) as channel:
        stub = frontend_pb2_grpc.GenerationServiceStub(channel)
        sampling = {"max_tokens": 60, "structured_output": {"regex": EMAIL}}
        request = frontend_pb2.GenerateRequest(text=PROMPT, sampling=sampling)  # type: ignore[arg-type]
        text = "".join([response.text async for response in stub.Generate(request)])
        assert re.fullmatch(EMAIL, text)
        request.sampling.structured_output.json_schema = '{"not": {}}'
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            _ = [response async for response in stub.Generate(request)]
    assert refusal.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "sampling.structured_output.json_schema cannot be followed" in (refusal.value.details() or "")


TEXTS: list[list[str]] = []
"""What the first ring gave."""


async def constrained_texts(http: httpx.AsyncClient, *, together: bool) -> list[str]:
    """Ten greedy outputs, half of them by a schema, from prompts of different lengths."""
    forms: list[dict[str, Any]] = [{"guided_regex": WORDS}, {"guided_json": SCHEMA}]
    calls = [
        complete(
            http, prompt=PROMPT * (1 + i % 4) + f"    x{i} = ", max_tokens=60, temperature=0, **forms[i % 2]
        )
        for i in range(NUM_REQUESTS)
    ]
    choices = await asyncio.gather(*calls) if together else [await call for call in calls]
    return [choice["text"] for choice in choices]


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("depth", ["2", *in_soak("1", "4")])
async def test_constrained_output_is_the_same_at_every_depth_and_preempted(
    launch_ring: Launch, depth: str
) -> None:
    ring = launch_ring("--no-proof", *SMALL, "--max-inflight-steps", depth)
    ring.wait_for("signalbox is up")
    async with connect(ring) as http:
        alone = await constrained_texts(http, together=False)
        (before,) = workers_of(ring)
        assert before["num_preemptions"] == 0
        for _ in range(10):  # on a busy machine ten requests may come one after another
            assert await constrained_texts(http, together=True) == alone
            (worker,) = workers_of(ring)
            if worker["num_preemptions"]:
                break
    assert worker["num_preemptions"]
    TEXTS.append(alone)
    assert TEXTS[0] == alone, "at every depth"
    assert all(re.fullmatch(r"([a-z_]{1,8} )*([a-z_]{1,8})?(end)?", text) for text in alone[::2])
