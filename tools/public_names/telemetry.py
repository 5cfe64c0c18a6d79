"""Names by which operators read the product: metrics with their labels, spans, events, attributes and log keys."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from prometheus_client.metrics import MetricWrapperBase

from frontend_svc.metrics import Metrics
from signalbox.runtime import logs
from signalbox.telemetry import attributes
from tools.public_names.sources import Flow, modules_with, strings_of_keys

KINDS = {"METRIC_": "metric", "VLLM_": "metric", "SPAN_": "span", "OPERATION_": "span", "EVENT_": "event"}
"""What a constant of signalbox.telemetry.attributes names, by the beginning of its own name."""
READERS = {"gauge", "counter"}
"""Functions that make a metric of a name, a documentation and samples."""
MAKERS = ("metrics_server", "GaugeMetricFamily")
"""Words of the modules that make metrics."""
METHODS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


def names() -> Iterator[str]:
    """Metrics, spans, events and attributes."""
    for constant, value in vars(attributes).items():
        kind = next((kind for start, kind in KINDS.items() if constant.startswith(start)), None)
        if kind is not None:
            yield f"{kind} {value}"
        elif constant.isupper() and isinstance(value, str) and "." in value and "://" not in value:
            yield f"attribute {value}"


def labels() -> Iterator[str]:
    """Each label with its metric: of the frontend by its registry, of other services by how samples are made."""
    for collector in set(Metrics()._registry._collector_to_names):
        if isinstance(collector, MetricWrapperBase):
            yield from (f"label {collector._name} {label}" for label in collector._labelnames)
    for module in modules_with(*MAKERS):
        flow = Flow(module)
        for call in flow.calls():
            name = call.func.id if isinstance(call.func, ast.Name) else ""
            if name in READERS and len(call.args) == 3:
                found = sorted(set(strings_of_keys(flow.into(call.args[2]))))
                for metric in _metrics(flow, call.args[0]):
                    yield from (f"label {metric} {label}" for label in found)
            elif name == "GaugeMetricFamily":
                for keyword in call.keywords:
                    if keyword.arg == "labels":
                        for metric in _metrics(flow, call.args[0]):
                            yield from (
                                f"label {metric} {label}" for label in ast.literal_eval(keyword.value)
                            )


def log_keys() -> Iterator[str]:
    """Keys of the JSON objects that services log."""
    for key in (logs.TIME, logs.SERVICE, logs.LEVEL, logs.LOGGER, logs.MESSAGE, logs.TRACEBACK):
        yield f"log {key}"
    for module in modules_with("extra=", "def ids("):
        flow = Flow(module)
        expressions = [
            keyword.value
            for call in flow.calls()
            for keyword in call.keywords
            if keyword.arg == "extra" and isinstance(call.func, ast.Attribute) and call.func.attr in METHODS
        ]
        for expression in expressions:
            yield from (f"log {key}" for key in strings_of_keys(flow.into(expression)))
        yield from (f"log {key}" for key in strings_of_keys(_ids(module)))


def _metrics(flow: Flow, expression: ast.expr) -> Iterator[str]:
    """Values of the constants of `attributes` that flow into `expression`."""
    for node in flow.into(expression):
        if isinstance(node, ast.Attribute) and node.attr.startswith(("METRIC_", "VLLM_")):
            yield getattr(attributes, node.attr)


def _ids(module: ast.Module) -> Iterator[ast.AST]:
    """Bodies of the properties `ids` of settings."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.name == "ids" and node.decorator_list:
            yield from ast.walk(node)
