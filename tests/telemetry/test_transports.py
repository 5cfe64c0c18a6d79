"""Spans leave over gRPC and over HTTP, as the standard variables say."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import proxy_bypass

import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from signalbox.telemetry import spans
from signalbox.telemetry.trace_context import TraceContext
from tests.telemetry.conftest import environment
from tests.telemetry.receiver import Received, Receiver


@pytest.fixture
def over_http(receiver: Receiver) -> Iterator[str]:
    """Endpoint of a collector over HTTP, whose spans the receiver keeps."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/traces":
                receiver.take(trace_service_pb2.ExportTraceServiceRequest.FromString(body))
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def send(name: str) -> spans.SpanCounts:
    """Sends a span that is linked to another one; what became of it."""
    tracer = spans.start("test", "0")
    span = tracer.start(name, "", "", time.monotonic(), is_entry=True)
    assert span is not None
    span.links.append(TraceContext(7, 9, True))
    span.event("happened", time.monotonic(), {"number": 3})
    span.end(time.monotonic())
    tracer.stop()
    return tracer.counts


def named(receiver: Receiver, name: str) -> Received:
    (found,) = [span for span in receiver.spans() if span.name == name]
    return found


def test_over_http(over_http: str, receiver: Receiver) -> None:
    with environment(OTEL_EXPORTER_OTLP_ENDPOINT=over_http, OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf"):
        assert send("over http").num_exported == 1
    span = named(receiver, "over http")
    assert [(name, attributes) for name, _, attributes in span.events] == [("happened", {"number": 3})]
    assert span.links == [(f"{7:032x}", f"{9:016x}")]


def test_over_http_to_the_endpoint_of_traces_as_it_is(over_http: str, receiver: Receiver) -> None:
    with environment(
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{over_http}/v1/traces",
        OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="http/protobuf",
    ):
        assert send("over http alone").num_exported == 1
    assert named(receiver, "over http alone").schema_url


def test_over_grpc(receiver: Receiver) -> None:
    with environment(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint):
        assert send("over grpc").num_exported == 1
    assert named(receiver, "over grpc").links == [(f"{7:032x}", f"{9:016x}")]


@pytest.mark.parametrize("outside", ["", "collector.example", " *"])
def test_a_collector_on_this_machine_is_not_dialled_through_the_machine_s_proxy(
    over_http: str, receiver: Receiver, outside: str
) -> None:
    """outside: whom the machine's own settings reach without it."""
    names = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
    proxies = dict.fromkeys(names, "http://127.0.0.1:9")
    proxies |= dict.fromkeys(("no_proxy", "no_grpc_proxy"), outside)
    with environment(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint, **proxies):
        assert send(f"grpc past a proxy {outside}").num_exported == 1
    with environment(
        OTEL_EXPORTER_OTLP_ENDPOINT=over_http, OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf", **proxies
    ):
        assert send(f"http past a proxy {outside}").num_exported == 1
    for transport in ("grpc", "http"):
        assert named(receiver, f"{transport} past a proxy {outside}").links


@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
def test_a_machine_that_reaches_all_hosts_directly_still_does(receiver: Receiver, name: str) -> None:
    """`*` means all hosts only where nothing stands beside it."""
    proxies = {"http_proxy": "http://127.0.0.1:9", "no_proxy": ""} | {name: "*"}
    with environment(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint, **proxies):
        assert send(f"directly, by {name}").num_exported == 1
        assert proxy_bypass("collector.example")
