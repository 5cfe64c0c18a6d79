"""A Prometheus scrapes all services of a real ring: what rules and boards name is there, and an outage is told."""

from __future__ import annotations

import re
import signal
from functools import partial

import httpx
import psutil
import pytest
import yaml

from tests.monitoring.conftest import SERVICES, Monitored, board_queries, rules_of
from tools.boards import FOLDER, make_boards

SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
QUERIES = [*board_queries(), *(rule["expr"] for kind in ("alert", "record") for rule in rules_of(kind))]
_METRIC = re.compile(r"\b(?:signalbox_|process_|gen_ai_server_)\w+")
_RECORD = re.compile(r"\bsignalbox:[\w:]+")


@pytest.fixture(scope="module")
def used(monitored: Monitored) -> Monitored:
    """After some requests, when Prometheus has seen them."""
    body = {"model": "demo", "prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0}
    for _ in range(3):
        assert httpx.post(f"{monitored.ring.url}/v1/completions", json=body, timeout=20).status_code == 200
    query = "sum(signalbox_frontend_requests_total) >= 3"
    monitored.wait(lambda: monitored.ask("query", query=query)["result"], "no request was seen")
    return monitored


def test_every_service_is_scraped(used: Monitored) -> None:
    def health() -> set[tuple[str, str]]:
        targets = used.ask("targets")["activeTargets"]
        return {(each["labels"]["job"], each["health"]) for each in targets}

    used.wait(lambda: health() == {(f"signalbox-{name}", "up") for name in SERVICES}, "not all are up")


def exported(monitored: Monitored) -> set[str]:
    """Names of all series that the services may show."""
    found = set()
    for page in monitored.pages.values():
        text = httpx.get(f"http://{page}/metrics").text
        for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE):
            found |= {name} if kind != "histogram" else {name + suffix for suffix in SUFFIXES[kind]}
    return found


def test_every_metric_that_is_named_is_there(used: Monitored) -> None:
    named = {name for query in QUERIES for name in _METRIC.findall(query)}
    assert len(named) > 50
    assert named - exported(used) == set()


def test_every_record_that_is_named_is_made() -> None:
    named = {name for query in QUERIES for name in _RECORD.findall(query)}
    assert named == {rule["record"] for rule in rules_of("record")}


def test_every_query_is_one(used: Monitored) -> None:
    for query in QUERIES:
        used.ask("query", query=query)


def has_result(monitored: Monitored, query: str) -> bool:
    return bool(monitored.ask("query", query=query)["result"])


def test_what_serves_has_values_on_the_boards(used: Monitored) -> None:
    for query in (
        "signalbox:requests:rate5m",
        "signalbox:blocks_held:ratio",
        "signalbox_scheduler_leads == 1",
    ):
        used.wait(partial(has_result, used, query), query)


def test_prometheus_keeps_the_traces_of_values(used: Monitored) -> None:
    name = "gen_ai_server_request_duration_seconds_bucket"
    found = used.ask("query_exemplars", query=name, start="0", end="9999999999")
    labels = [exemplar["labels"] for series in found for exemplar in series["exemplars"]]
    assert labels
    assert all(len(each["trace_id"]) == 32 and len(each["span_id"]) == 16 for each in labels)


def test_a_worker_that_stands_still_is_told_and_so_is_its_return(used: Monitored) -> None:
    expected = {("SignalboxServiceDown", "signalbox-worker"), ("SignalboxWorkerSuspect", "worker-0")}
    assert not expected & used.firing()
    (worker,) = (each for each in used.ring.services() if "worker_svc" in each.cmdline())
    processes: list[psutil.Process] = [worker, *worker.children(recursive=True)]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        used.wait(lambda: expected <= used.firing(), "the outage was not told")
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGCONT)
    used.wait(lambda: not expected & used.firing(), "the return was not told")


def test_the_boards_are_those_of_their_source() -> None:
    made = make_boards()
    assert {path.name: path.read_text() for path in (FOLDER / "boards").iterdir()} == made, (
        "python -m tools.boards"
    )
    generator = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["configMapGenerator"]
    assert {name for entry in generator for name in entry["files"]} == {f"boards/{name}" for name in made}
