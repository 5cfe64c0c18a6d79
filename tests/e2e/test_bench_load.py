"""`signalbox bench load` against a real ring, over both of its faces."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.e2e.conftest import RunningRing, StartRing
from tests.ports import free_ports

SIM = ("--runner", "sim", "--worker-set", "sim-base-ms=2", "--frontend-set", "max-open-requests=8")


@pytest.fixture
def sim_ring(start_ring: StartRing) -> RunningRing:
    return start_ring(*SIM)


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "signalbox", "bench", "load", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def lines(*arguments: str) -> list[dict[str, Any]]:
    done = bench(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def address(ring: RunningRing, scheme: str) -> str:
    return f"grpc://{ring.grpc}" if scheme == "grpc" else ring.url


@pytest.mark.sampled
@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_a_closed_loop_gives_a_line_for_each_number_of_streams(sim_ring: RunningRing, scheme: str) -> None:
    options = ("--streams", "1", "4", "--requests", "8", "--prompt-tokens", "8-40", "--output-tokens", "20")
    found = lines(address(sim_ring, scheme), *options, "--slo", "ttft-ms=60000,itl-ms=60000")
    assert [line["streams"] for line in found] == [1, 4]
    for line in found:
        assert (line["model"], line["requests"], line["failed"]) == ("demo", 8, 0)
        assert line["output_tok_s"] == pytest.approx(160 / line["duration_s"], rel=0.01)
        assert 0 < line["ttft_ms_p50"] <= line["ttft_ms_p90"] <= line["ttft_ms_p99"] < line["e2e_ms_p99"]
        assert line["itl_ms_p50"] >= 1  # a step takes 2 ms, and no token waits for another to go with it
        assert line["slo_share"] == 1.0
        assert 0 <= line["client_loop_share"] <= 1
    assert found[1]["output_tok_s"] > found[0]["output_tok_s"]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_an_open_loop_sends_at_its_rate(sim_ring: RunningRing, scheme: str) -> None:
    options = ("--rate", "20", "--duration", "3", "--output-tokens", "4", "--seed", "5")
    (line,) = lines(address(sim_ring, scheme), *options)
    assert line["loop"] == "open"
    assert 35 <= line["requests"] <= 90
    assert line["failed"] == 0


@pytest.mark.sampled
@pytest.mark.parametrize(("scheme", "code"), [("grpc", "ResourceExhaustedError"), ("http", "http_429")])
def test_refusals_are_counted_by_code(sim_ring: RunningRing, scheme: str, code: str) -> None:
    options = ("--streams", "16", "--requests", "16", "--output-tokens", "200")
    (line,) = lines(address(sim_ring, scheme), *options)
    assert line["errors"] == {code: line["failed"]}
    assert 0 < line["failed"] <= 8


@pytest.mark.slow
def test_the_table_explains_failures(sim_ring: RunningRing) -> None:
    options = ("--streams", "16", "--requests", "16", "--output-tokens", "200")
    done = bench(address(sim_ring, "grpc"), *options)
    assert done.returncode == 0
    assert "model demo: prompts of 128, outputs of 200 tokens" in done.stdout
    assert "ResourceExhaustedError" in done.stdout


@pytest.mark.slow
def test_what_cannot_work_is_said_before_it_is_measured(sim_ring: RunningRing) -> None:
    done = bench(sim_ring.url, "--prompt-tokens", "5000")
    assert done.returncode == 1
    assert "no request of the warm-up succeeded: this model's maximum context length is" in done.stderr
    done = bench(f"grpc://127.0.0.1:{free_ports(1)[0]}")
    assert (done.returncode, done.stdout) == (1, "")
    assert "nothing answers at" in done.stderr


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ftp://a",), "is not grpc[s]://HOST:PORT or http[s]://HOST:PORT"),
        (("grpc://a:1", "--slo", "ttft=5"), "is not one of ttft-ms=NUMBER"),
        (("grpc://a:1", "--prompt-tokens", "9-3"), "is not a length such as 128"),
        (("grpc://a:1", "--rate", "0"), "is not a number above 0"),
        (("grpc://a:1", "--rate", "1", "--streams", "1"), "not allowed with argument"),
        (("grpc://a:1", "--steams", "1"), "did you mean --streams?"),
    ],
)
def test_wrong_options_are_refused_by_name(arguments: tuple[str, ...], message: str) -> None:
    done = bench(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
