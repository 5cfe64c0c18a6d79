"""`/metrics` of each service, against what was sent."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from signalbox.client import Client
from tests.telemetry.conftest import Measured
from tests.telemetry.receiver import Receiver

NUM_REQUESTS = 6
PROMPT_TOKENS = 9
MAX_TOKENS = 5
GEN_AI = {
    "gen_ai_operation_name": "text_completion",
    "gen_ai_provider_name": "signalbox",
    "gen_ai_request_model": "demo",
}
Value = Callable[..., float]


def scrape(address: str) -> Value:
    """Looks up samples of one moment: `value(name, **labels)` is the sum of those that have these labels."""
    families = list(text_string_to_metric_families(httpx.get(f"http://{address}/metrics").text))

    def value(name: str, **labels: str) -> float:
        found = [
            sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert found, f"{name}{labels} is not there"
        return sum(found)

    return value


async def run_requests(measured: Measured) -> None:
    async with Client(measured.ring.grpc) as client:
        options: dict[str, Any] = {"max_tokens": MAX_TOKENS, "temperature": 0, "ignore_eos": True}
        prompts = [[100 + number] * PROMPT_TOKENS for number in range(NUM_REQUESTS)]
        await asyncio.gather(*(client.generate(prompt, **options).result() for prompt in prompts))


async def difference(measured: Measured, address: str) -> Value:
    """How the samples of a service change with the requests."""
    await run_requests(measured)  # every label is there
    before = scrape(address)
    await run_requests(measured)
    await asyncio.sleep(0.3)  # the last slots are released by a step of their own
    after = scrape(address)
    return lambda name, **labels: after(name, **labels) - before(name, **labels)


async def test_the_frontend_counts_what_was_sent(measured: Measured) -> None:
    value = await difference(measured, measured.ring.http)
    assert value("signalbox_frontend_requests_total", outcome="length") == NUM_REQUESTS
    for token_type, count in (("input", PROMPT_TOKENS), ("output", MAX_TOKENS)):
        usage = value("signalbox_frontend_token_usage_total", gen_ai_token_type=token_type, **GEN_AI)
        assert usage == NUM_REQUESTS * count
    for name in ("request_duration", "time_to_first_token", "time_per_output_token"):
        assert value(f"gen_ai_server_{name}_seconds_count", **GEN_AI) == NUM_REQUESTS
    spent = value("gen_ai_server_request_duration_seconds_sum", **GEN_AI)
    waited = value("gen_ai_server_time_to_first_token_seconds_sum", **GEN_AI)
    per_token = value("gen_ai_server_time_per_output_token_seconds_sum", **GEN_AI)
    assert 0 < waited < spent
    assert waited + per_token * (MAX_TOKENS - 1) <= spent


async def test_the_frontend_tells_phases_and_lengths_by_model(measured: Measured) -> None:
    value = await difference(measured, measured.ring.http)
    prefix, model = "signalbox_frontend", {"gen_ai_request_model": "demo"}
    for phase in ("queue", "prefill", "decode"):
        assert value(f"{prefix}_{phase}_seconds_count", **model) == NUM_REQUESTS
    assert value(f"{prefix}_prompt_length_tokens_sum", **model) == NUM_REQUESTS * PROMPT_TOKENS
    assert value(f"{prefix}_output_length_tokens_sum", **model) == NUM_REQUESTS * MAX_TOKENS
    phases = sum(value(f"{prefix}_{phase}_seconds_sum") for phase in ("queue", "prefill", "decode"))
    assert 0 < phases <= value("gen_ai_server_request_duration_seconds_sum")


async def test_a_value_shows_the_trace_that_it_is_of(measured: Measured, receiver: Receiver) -> None:
    await run_requests(measured)
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    page = httpx.get(f"{measured.ring.url}/metrics", headers=accept)
    assert page.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    found = {}
    for family in openmetrics.text_string_to_metric_families(page.text):
        for sample in family.samples:
            if sample.exemplar:
                found[family.name] = (sample.exemplar.labels["trace_id"], sample.exemplar.labels["span_id"])
    assert set(found) == {
        f"gen_ai_server_{name}_seconds"
        for name in ("request_duration", "time_to_first_token", "time_per_output_token")
    }
    receiver.wait(lambda spans: {(span.trace_id, span.span_id) for span in spans} >= set(found.values()))


async def test_each_service_tells_what_its_process_takes(measured: Measured) -> None:
    for address in (measured.ring.http, measured.scheduler, measured.worker):
        assert scrape(address)("process_resident_memory_bytes") > 1e7
        assert scrape(address)("process_cpu_seconds_total") > 0


async def test_the_scheduler_counts_what_was_sent(measured: Measured) -> None:
    value = await difference(measured, measured.scheduler)
    prefix = "signalbox_scheduler"
    assert value(f"{prefix}_output_tokens_total") == NUM_REQUESTS * MAX_TOKENS
    computed = value(f"{prefix}_prefill_tokens_total") + value(f"{prefix}_prefix_cache_hit_tokens_total")
    assert computed == value(f"{prefix}_prefix_cache_query_tokens_total") == NUM_REQUESTS * PROMPT_TOKENS
    assert value(f"{prefix}_steps_total") >= MAX_TOKENS
    assert value(f"{prefix}_step_execute_seconds_total") > 0
    now = scrape(measured.scheduler)
    nothing = (
        "requests_waiting",
        "requests_running",
        "requests_preempted",
        "requests_suspended",
        "safe_mode",
    )
    for name in nothing:
        assert now(f"{prefix}_{name}") == 0
    assert now(f"{prefix}_worker_attached", worker_id="worker-0", model="demo") == 1
    assert now(f"{prefix}_frontends") == 1
    assert now(f"{prefix}_blocks") == now(f"{prefix}_worker_blocks") == 40
    assert now(f"{prefix}_blocks", state="held") == 0
    assert now(f"{prefix}_blocks", state="cached") > 0


async def test_the_worker_counts_its_steps(measured: Measured) -> None:
    value = await difference(measured, measured.worker)
    assert value("signalbox_worker_steps_total") >= MAX_TOKENS
    # Steps of a burst behind a request's end, and those that only free slots, take no time of the model.
    assert value("signalbox_worker_step_seconds_total", part="execute") >= 0.002 * MAX_TOKENS
    now = scrape(measured.worker)
    assert now("signalbox_worker_attached") == 1
    assert now("signalbox_worker_slots", state="free") == now("signalbox_worker_slots")
    assert now("signalbox_worker_outbound_logs") == 1
    assert now("signalbox_worker_outbound_bytes") >= 0


async def test_spans_are_counted(measured: Measured, receiver: Receiver) -> None:
    await run_requests(measured)
    for address in (measured.ring.http, measured.scheduler, measured.worker):
        while not scrape(address)("signalbox_telemetry_spans_total", result="exported"):
            await asyncio.sleep(0.1)
        assert scrape(address)("signalbox_telemetry_spans_total", result="dropped") == 0


@pytest.mark.parametrize("address", ["taken", "nowhere"])
def test_a_port_that_cannot_be_had_is_a_sentence(address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        if address == "taken":
            address = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = ["-m", "scheduler_svc", "--listen", "127.0.0.1:0", "--metrics", address]
        result = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("scheduler: ")
    assert "Traceback" not in result.stderr
