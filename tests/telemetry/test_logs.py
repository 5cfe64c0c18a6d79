"""All services of a ring log JSON when they are told to, with the ids by which lines and spans are found."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.telemetry.conftest import Measured
from tests.telemetry.test_trace import MAX_TOKENS, complete, new_trace

PROMPT = [15, 16, 17]
"""Nothing of it is cached for other tests."""


def objects_of(measured: Measured, service: str) -> list[dict[str, Any]]:
    text = (measured.ring.log_dir / f"{service}.log").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_every_line_of_every_service_is_an_object(measured: Measured) -> None:
    for service in ("scheduler", "worker-0", "frontend"):
        found = objects_of(measured, service)
        assert found
        assert {line["service"] for line in found} == {service.partition("-")[0]}
    assert {line["worker_id"] for line in objects_of(measured, "worker-0")} == {"worker-0"}


def test_the_end_of_a_request_is_found_by_its_trace(measured: Measured) -> None:
    trace_id, headers = new_trace()
    complete(measured, headers, PROMPT)
    (ended,) = [line for line in objects_of(measured, "frontend") if line.get("trace_id") == trace_id]
    assert (ended["message"], ended["outcome"], ended["worker_id"]) == ("request ended", "length", "worker-0")
    assert (ended["num_prompt_tokens"], ended["num_output_tokens"]) == (len(PROMPT), MAX_TOKENS)
    assert "prompt" not in ended


def test_the_command_line_shows_them_as_text_or_as_they_are(measured: Measured) -> None:
    complete(measured, {}, PROMPT)
    command = [sys.executable, "-m", "signalbox", "logs", "--pid", str(measured.ring.process.pid), "frontend"]

    def show(*options: str) -> str:
        done = subprocess.run([*command, "-n", "1", *options], capture_output=True, text=True, check=True)
        return done.stdout

    assert " frontend INFO request ended request_id=" in show()
    assert json.loads(show("--json"))["message"] == "request ended"
