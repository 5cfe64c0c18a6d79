"""The whole ring, as clients see it: real processes, the demo model, every public face."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from signalbox.client import Client, FinishReason, Result
from signalbox.errors import InvalidRequestError, SignalboxError, UnknownModelError
from tests.e2e.conftest import Launch, RunningRing
from tests.zygote.popen import fresh

ROOT = Path(__file__).resolve().parents[2]
PROMPT = "def quicksort("


def run_cli(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "signalbox", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def read_status(ring: RunningRing) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(run_cli("status", "--scheduler", ring.scheduler, "--json").stdout)
    return status


async def complete(ring: RunningRing, prompt: str = PROMPT, **options: Any) -> Result:
    async with Client(ring.grpc) as client:
        return await client.generate(prompt, **({"max_tokens": 24, "temperature": 0} | options)).result()


def openai_client(ring: RunningRing) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{ring.url}/v1", api_key="none", max_retries=0, timeout=60)


def wait_idle(ring: RunningRing) -> None:
    """Until no request runs or waits and every block is free or cached."""
    give_up = time.monotonic() + 20
    while True:
        status = read_status(ring)
        if not status["num_waiting"] and not any(worker["num_running"] for worker in status["workers"]):
            return
        assert time.monotonic() < give_up, status
        time.sleep(0.1)


# readiness and status


def test_health_and_readiness(ring: RunningRing) -> None:
    assert httpx.get(f"{ring.url}/health").status_code == 200
    assert httpx.get(f"{ring.url}/ready").status_code == 200


def test_status_shows_the_worker(ring: RunningRing) -> None:
    status = read_status(ring)
    assert status["num_frontends"] == 1
    (worker,) = status["workers"]
    assert (worker["worker_id"], worker["model"], worker["attached"]) == ("worker-0", "demo", True)
    assert 0 < worker["num_blocks"] <= 512
    table = run_cli("status", "--scheduler", ring.scheduler)
    assert "1 frontend, 1 worker" in table.stdout
    assert "worker-0" in table.stdout


# gRPC


def run_protos_only(ring: RunningRing, folder: Path) -> dict[str, Any]:
    """Generates the code afresh, so that nothing of this repository but the protos is used."""
    (folder / "signalbox" / "v1").mkdir(parents=True)
    (folder / "signalbox" / "__init__.py").touch()
    subprocess.run([sys.executable, ROOT / "protos" / "generate.py", folder], check=True, timeout=60)
    script = (ROOT / "tests" / "e2e" / "protos_only_client.py").read_text()
    (folder / "client.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    output = subprocess.run(
        [sys.executable, "client.py", ring.grpc, PROMPT, "24"],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=90, check=True,
    ).stdout  # fmt: skip
    result: dict[str, Any] = json.loads(output)
    assert result["code_from"].startswith(str(folder))
    return result


async def test_a_client_needs_only_the_protos(ring: RunningRing, tmp_path: Path) -> None:
    answer = run_protos_only(ring, tmp_path)
    assert answer["models"] == ["demo"]
    assert answer["accepted"] == [True] + [False] * (len(answer["accepted"]) - 1)
    assert answer["finished"] == [False] * (len(answer["finished"]) - 1) + [True]
    assert answer["num_output_tokens"] == len(answer["token_ids"]) <= 24
    ours = await complete(ring)
    assert (list(ours.token_ids), ours.text) == (answer["token_ids"], answer["text"])


async def test_tokens_arrive_one_step_at_a_time(ring: RunningRing) -> None:
    async with Client(ring.grpc) as client:
        deltas = [
            delta async for delta in client.generate(PROMPT, max_tokens=32, temperature=0, ignore_eos=True)
        ]
    assert len(deltas) > 8
    assert sum(len(delta.token_ids) for delta in deltas) == 32
    assert deltas[-1].finished is not None
    assert deltas[-1].finished.reason is FinishReason.LENGTH


async def test_requests_that_run_together_do_not_change_each_other(ring: RunningRing) -> None:
    prompts = [f"def function_{index}(" for index in range(12)]
    alone = [(await complete(ring, prompt)).text for prompt in prompts[:3]]
    together = await asyncio.gather(*(complete(ring, prompt) for prompt in prompts))
    assert [result.text for result in together[:3]] == alone
    assert all(result.token_ids for result in together)


async def test_the_second_time_the_prompt_is_cached(ring: RunningRing) -> None:
    prompt = "# a prompt that no other test has\nimport os\nimport sys\n" * 4
    first = await complete(ring, prompt)
    wait_idle(ring)  # steps are sent ahead: a client may be told before the scheduler is
    second = await complete(ring, prompt)
    assert first.finished.num_cached_tokens == 0
    assert second.finished.num_cached_tokens > 0
    assert second.text == first.text


async def test_a_seed_repeats_a_sampled_output(ring: RunningRing) -> None:
    first, second, other = [
        await complete(ring, temperature=1.0, seed=seed, ignore_eos=True) for seed in (7, 7, 8)
    ]
    assert first.token_ids == second.token_ids != other.token_ids


async def test_a_ring_of_fresh_processes_answers_with_the_same_tokens(
    ring: RunningRing, launch_ring: Launch
) -> None:
    """The shared ring's services are forks of the zygote of the tests (but with `--fresh`)."""
    with fresh():
        other = launch_ring("--no-proof")
    other.wait_for("signalbox is up")
    for options in ({}, {"temperature": 1.0, "seed": 7, "ignore_eos": True, "max_tokens": 64}):
        forked, afresh = [await complete(each, **options) for each in (ring, other)]
        assert forked.token_ids == afresh.token_ids
    assert other.stop() == 0


async def test_a_stop_string_ends_the_text(ring: RunningRing) -> None:
    whole = await complete(ring, max_tokens=32, ignore_eos=True)
    stop = whole.text[8:11]
    stopped = await complete(ring, max_tokens=32, ignore_eos=True, stop=[stop])
    assert stopped.text == whole.text[: whole.text.index(stop)]
    assert (stopped.finished.reason, stopped.finished.stop) == (FinishReason.STOP, stop)
    assert stopped.finished.num_output_tokens < whole.finished.num_output_tokens


async def test_a_cancelled_request_gives_its_place_back(ring: RunningRing) -> None:
    async with Client(ring.grpc) as client:
        generation = client.generate(PROMPT, max_tokens=1000, temperature=0, ignore_eos=True)
        await anext(generation)
        generation.cancel()
    wait_idle(ring)


@pytest.mark.parametrize(
    ("options", "kind", "field"),
    [
        ({"model": "another"}, UnknownModelError, "model"),
        ({"top_p": 2.0}, InvalidRequestError, "top_p"),
        ({"max_tokens": 0}, InvalidRequestError, "max_tokens"),
    ],
)
async def test_a_wrong_request_is_refused_with_its_field(
    ring: RunningRing, options: dict[str, Any], kind: type[SignalboxError], field: str
) -> None:
    with pytest.raises(kind) as error:
        await complete(ring, **options)
    assert field in error.value.field


async def test_a_prompt_that_does_not_fit_is_refused_and_hurts_nobody(ring: RunningRing) -> None:
    with pytest.raises(InvalidRequestError):
        await complete(ring, "word " * 20_000)
    assert (await complete(ring)).token_ids


# OpenAI


async def test_openai_completion_is_the_same_text(ring: RunningRing) -> None:
    completion = openai_client(ring).completions.create(
        model="demo", prompt=PROMPT, max_tokens=24, temperature=0
    )
    ours = await complete(ring)
    assert completion.choices[0].text == ours.text
    assert completion.usage
    assert completion.usage.completion_tokens == ours.finished.num_output_tokens
    assert completion.usage.prompt_tokens == ours.finished.num_prompt_tokens


def test_openai_chat_streams(ring: RunningRing) -> None:
    client = openai_client(ring)
    question = [{"role": "user", "content": "sort a list"}]
    options: dict[str, Any] = {"model": "demo", "messages": question, "max_tokens": 16, "temperature": 0}
    chunks = list(client.chat.completions.create(stream=True, **options))
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] in ("stop", "length")
    assert streamed == client.chat.completions.create(**options).choices[0].message.content


def test_openai_lists_the_model(ring: RunningRing) -> None:
    assert [model.id for model in openai_client(ring).models.list()] == ["demo"]


def test_openai_error_names_the_parameter(ring: RunningRing) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        openai_client(ring).completions.create(model="demo", prompt=PROMPT, temperature=-1)
    assert error.value.param == "temperature"


def test_a_client_that_hangs_up_is_a_cancel(ring: RunningRing) -> None:
    body = {"model": "demo", "prompt": PROMPT, "max_tokens": 1000, "stream": True, "ignore_eos": True}
    with httpx.stream("POST", f"{ring.url}/v1/completions", json=body, timeout=60) as response:
        assert response.status_code == 200, response.read()
        next(response.iter_lines())
    wait_idle(ring)


# the command line


async def test_generate_prints_the_text(ring: RunningRing) -> None:
    result = run_cli("generate", "-", "--address", ring.grpc, "--max-tokens", "24", stdin=PROMPT)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == (await complete(ring)).text + "\n"


def test_generate_prints_json(ring: RunningRing) -> None:
    result = run_cli("generate", PROMPT, "--address", ring.grpc, "--max-tokens", "8", "--json")
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert sum(len(record["token_ids"]) for record in records) == records[-1]["finished"]["num_output_tokens"]


def test_generate_says_what_is_wrong(ring: RunningRing) -> None:
    result = run_cli("generate", PROMPT, "--address", ring.grpc, "--model", "another")
    assert result.returncode == 1
    assert result.stderr.startswith("signalbox: ")
    assert result.stderr.count("\n") == 1


def test_chat_answers(ring: RunningRing) -> None:
    result = run_cli("chat", "--url", ring.url, "--max-tokens", "8", stdin="sort a list\nagain\n")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("you> ") == 3
