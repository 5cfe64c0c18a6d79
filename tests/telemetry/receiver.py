"""A collector: takes spans over OTLP and keeps them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2

TIMEOUT_S = 20


@dataclass(frozen=True)
class Received:
    """A span that arrived, with its resource."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    is_server: bool
    is_error: bool
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    events: list[tuple[str, int, dict[str, Any]]]
    tracestate: str
    schema_url: str
    links: list[tuple[str, str]]
    """(trace id, span id)."""

    @property
    def event_names(self) -> list[str]:
        return [name for name, _, _ in self.events]


class Receiver(trace_service_pb2_grpc.TraceServiceServicer):
    """TraceService on a free port."""

    def __init__(self) -> None:
        self._spans: list[Received] = []
        self._arrived = threading.Condition()
        self._server = grpc.server(ThreadPoolExecutor(2))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def Export(  # noqa: N802
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        self.take(request)
        return trace_service_pb2.ExportTraceServiceResponse()

    def take(self, request: trace_service_pb2.ExportTraceServiceRequest) -> None:
        """Keeps the spans of a message, whichever way it came."""
        with self._arrived:
            for resource in request.resource_spans:
                service = _values(resource.resource.attributes)["service.name"]
                for scope in resource.scope_spans:
                    self._spans += [_received(service, span, scope.schema_url) for span in scope.spans]
            self._arrived.notify_all()

    def spans(self, trace_id: str | None = None) -> list[Received]:
        """Of one trace, or all; by their starts."""
        with self._arrived:
            found = [span for span in self._spans if trace_id in (None, span.trace_id)]
        return sorted(found, key=lambda span: span.start_ns)

    def wait(
        self, condition: Callable[[list[Received]], object], trace_id: str | None = None
    ) -> list[Received]:
        """The spans, once `condition` holds for them."""
        give_up = time.monotonic() + TIMEOUT_S
        while not condition(spans := self.spans(trace_id)):
            assert time.monotonic() < give_up, f"spans so far: {[(s.service, s.name) for s in spans]}"
            with self._arrived:
                self._arrived.wait(0.2)
        return spans

    def stop(self) -> None:
        self._server.stop(0).wait()


def _received(service: str, span: trace_pb2.Span, schema_url: str) -> Received:
    return Received(
        service=service,
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        is_server=span.kind == trace_pb2.Span.SPAN_KIND_SERVER,
        is_error=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=_values(span.attributes),
        events=[(event.name, event.time_unix_nano, _values(event.attributes)) for event in span.events],
        tracestate=span.trace_state,
        schema_url=schema_url,
        links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {item.key: _value(item.value) for item in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind)
