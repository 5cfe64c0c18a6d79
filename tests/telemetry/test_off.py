"""Without an endpoint there is no tracing at all."""

from __future__ import annotations

import subprocess
import sys

import pytest

from signalbox.telemetry import spans
from tests.telemetry.conftest import environment

PROGRAM = """
import sys
import frontend_svc.server, scheduler_svc.server, worker_svc.server
from signalbox.telemetry import spans
assert spans.start("test", "0") is spans.OFF
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
URL = "http://collector:4317"


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": URL, "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": URL, "OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
    ],
)
def test_tracing_is_off(variables: dict[str, str]) -> None:
    with environment(**variables):
        assert spans.start("test", "0") is spans.OFF


def test_opentelemetry_is_not_even_imported() -> None:
    with environment():
        subprocess.run([sys.executable, "-c", PROGRAM], timeout=90, check=True)


def test_the_endpoint_of_traces_goes_before_the_general_one() -> None:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": URL, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t:1"}
    assert spans.endpoint(variables) == "http://t:1"
    assert spans.endpoint({"OTEL_EXPORTER_OTLP_ENDPOINT": URL}) == URL


def test_a_tracer_that_is_off_makes_no_span() -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    assert spans.OFF.start("x", parent, "", 0.0, is_entry=True) is None
