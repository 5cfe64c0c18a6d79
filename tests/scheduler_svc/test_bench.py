"""The benches run, and what they print is about what was asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from signalbox.benchmarks.scheduler.scale import Ramp, RampSample
from signalbox.benchmarks.scheduler.step import run, summarize
from signalbox.benchmarks.scheduler.tables import Load, make_scheduler


def run_bench(module: str, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and the lines of a bench."""
    command = [sys.executable, "-m", module, *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    return result.returncode, [json.loads(line) for line in result.stdout.splitlines()]


def test_every_table_is_full_and_takes_its_turn() -> None:
    load = Load(running=4, speculative=0, inflight=2, prompt_tokens=32, waiting=3, steps=10, tables=5)
    scheduler, tables = make_scheduler(load)
    assert [table.worker.table.num_running for table in tables] == [4] * 5
    assert scheduler.num_waiting == 3
    times = run(load)
    assert {len(values) for values in times.parts.values()} == {10 * 5}
    line = summarize(load, times)
    assert line["tables"] == 5
    assert line["core_steps_per_s"] > line["steps_per_s"] > 0
    core_us = line["schedule_us_mean"] + line["update_us_mean"]
    assert line["core_steps_per_s"] == pytest.approx(1e6 / core_us, rel=0.01)


def test_a_ramp_says_what_its_starts_cost() -> None:
    ramp = Ramp(400)
    ramp.note(RampSample(1.0, 0, 5, 1.0, 1.0))
    ramp.note(RampSample(2.0, 100, 10, 2.0, 1.5))
    ramp.note(RampSample(3.0, 100, 90, 7.0, 9.0))  # nothing has started since
    ramp.note(RampSample(4.0, 300, 110, 2.5, 1.6))
    ramp.note(RampSample(4.5, 400, 160, 3.5, 1.8))
    assert ramp.line() == {
        "ramp_s": 2.5,
        "starts_per_s": 120.0,
        "late_starts_per_s": 200.0,
        "ramp_cpu_us_per_start": 5000.0,
        "ramp_steps_per_start": 0.5,
        "ramp_bench_share": 0.2,
    }


SMALL = ("--running", "4", "--step-ms", "10", "--seconds", "1")


@pytest.mark.slow
def test_scale_measures_workers_behind_relays() -> None:
    options = ("--workers", "3", "4", "--per-relay", "2", "--window-ms", "5")
    status, lines = run_bench("signalbox.benchmarks.scheduler.scale", *SMALL, *options)
    assert status == 0, lines
    assert [line["workers"] for line in lines[:2]] == [3, 4]
    for line in lines[:2]:
        assert line["per_relay"] == 2
        assert line["running_mean"] == 4
        assert 0 <= line["ramp_s"] < 60 and line["starts_per_s"] >= 0 and line["late_starts_per_s"] >= 0
        assert line["ramp_cpu_us_per_start"] >= 0
        assert 0 < line["scheduler_cpu_share"] < 1
        assert 0 < line["steps_per_s"] <= line["workers"] * 101
        assert line["steps_per_message_up"] > 1
    held = [line["workers"] for line in lines[:2] if line["held"]]
    assert lines[2:] == [{"workers_held": max(held, default=0)}]


@pytest.mark.slow
def test_scale_says_so_when_not_all_requests_run_in_time() -> None:
    options = ("--workers", "2", "--start-limit-s", "0.2", "--one-way-ms", "300")
    status, lines = run_bench("signalbox.benchmarks.scheduler.scale", *SMALL, *options)
    assert status == 1
    assert not lines[0]["held"]
    assert "after 0.2 s only" in lines[0]["error"]
    assert "of 8 requests ran" in lines[0]["error"]
    assert lines[1] == {"workers_held": 0}
