"""A deployment from its start to its end."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.request import urlopen

from signalbox.cli.http_client import HttpClient
from signalbox.client import Client
from tools.rehearsal.cluster import Cluster, Document, RehearsalError, render
from tools.rehearsal.running import Running, say

STOP_ORDER = ("frontend", "worker", "relay", "scheduler")
READY_S = 120.0
"""For readiness; Kubernetes would wait for ever."""
SCRAPE_TIMEOUT_S = 10.0
POLL_S = 0.05
PROMPT = "def quicksort("
MAX_TOKENS = 16


def wait_for(probe: str, pods: Sequence[Running], limit_s: Callable[[Document], float]) -> None:
    """Returns when a probe has been good once on each pod, run as often as the manifest says."""
    for running in pods:
        entry = running.pod.container[probe]
        give_up = time.monotonic() + limit_s(entry)
        while (answer := running.check(probe)) != "SERVING":
            for other in pods:
                if not other.child.running:
                    raise RehearsalError(other.child.exit_report())
            if time.monotonic() > give_up:
                raise RehearsalError(
                    f"the {probe} of {running.pod.name} still answers {answer}; its log is {running.child.log}"
                )
            time.sleep(entry.get("periodSeconds", 10))
        say(f"{running.pod.name}: {probe} is SERVING")


def startup_limit_s(probe: Document) -> float:
    """How long Kubernetes lets a container start."""
    return float(
        probe.get("initialDelaySeconds", 0) + probe.get("periodSeconds", 10) * probe["failureThreshold"]
    )


def scrape(pods: Sequence[Running]) -> None:
    """Asks each pod that says so for its metrics."""
    for running in pods:
        notes = running.pod.template["metadata"].get("annotations", {})
        if notes.get("prometheus.io/scrape") != "true":
            continue
        path, port = notes.get("prometheus.io/path", "/metrics"), notes["prometheus.io/port"]
        url = f"http://{running.pod.address}:{port}{path}"
        try:
            with urlopen(url, timeout=SCRAPE_TIMEOUT_S) as answer:
                lines = answer.read().decode().splitlines()
        except OSError as error:
            raise RehearsalError(f"no metrics from {running.pod.name} at {url}: {error}") from None
        say(f"{url}: {sum(not line.startswith('#') for line in lines)} samples")


def ask(cluster: Cluster) -> None:
    """One request through each public face: HTTP to the first frontend, gRPC to the last."""
    url = f"http://{_public(cluster, 'http')[0]}"
    client = HttpClient(url)
    model = client.get("/v1/models")["data"][0]["id"]
    body = {"model": model, "prompt": PROMPT, "max_tokens": MAX_TOKENS, "temperature": 0, "stream": True}
    events = client.post_stream("/v1/completions", body)
    _say_answer(url, "".join(choice["text"] for event in events for choice in event["choices"]))
    address = _public(cluster, "grpc")[-1]
    _say_answer(address, asyncio.run(_generate(address)))


async def _generate(address: str) -> str:
    async with Client(address) as client:
        result = await client.generate(PROMPT, max_tokens=MAX_TOKENS, temperature=0, timeout_s=60).result()
    return result.text


def _public(cluster: Cluster, port: str) -> list[str]:
    for service in cluster.of_kind("Service"):
        names = {entry.get("name") for entry in service["spec"]["ports"]}
        if port in names and {pod.component for pod in cluster.behind(service)} == {"frontend"}:
            return cluster.addresses(service, port)
    raise RehearsalError(f"no Service offers the frontends' port {port}")


def _say_answer(address: str, text: str) -> None:
    if not text:
        raise RehearsalError(f"{address} answered a request without any text")
    say(f"{address}: {PROMPT!r} -> {text!r}")


def stop(pods: Sequence[Running]) -> None:
    """Ends pods of one workload as the kubelet would: preStop, SIGTERM, and no more than the grace period."""
    if not pods:
        return
    spec, pre_stop_s = pods[0].pod.spec, pods[0].pod.pre_stop_s
    grace_s = spec["terminationGracePeriodSeconds"]
    give_up = time.monotonic() + grace_s
    time.sleep(pre_stop_s)
    for running in pods:
        running.child.send(signal.SIGTERM)
    for running in pods:
        while running.child.running:
            if time.monotonic() > give_up:
                raise RehearsalError(
                    f"{running.pod.name} did not stop within its grace period of {grace_s} s"
                )
            time.sleep(POLL_S)
        if running.child.process.returncode:
            raise RehearsalError(running.child.exit_report())
        say(f"{running.pod.name}: stopped, preStop {pre_stop_s:.0f} s, within {grace_s} s")


def rehearse(overlay: Path, directory: Path) -> None:
    """Starts everything at once, as Kubernetes does; waits by the manifest's probes; asks; stops in order.

    Raises RehearsalError or SignalboxError; nothing is left running, however it ends.
    """
    cluster = Cluster(render(overlay))
    pods: list[Running] = []
    try:
        for pod in cluster.pods:
            pods.append(Running(pod, cluster, directory))
        wait_for("startupProbe", pods, startup_limit_s)
        wait_for("readinessProbe", pods, lambda _: READY_S)
        ask(cluster)
        scrape(pods)
        wait_for("livenessProbe", pods, lambda _: 0.0)
        for running in pods:
            say(f"{running.pod.name}: {running.memory() >> 20} MiB of memory at most")
        for component in STOP_ORDER:
            stop([running for running in pods if running.pod.component == component])
    finally:
        for running in pods:
            running.child.send(signal.SIGKILL)
            running.child.process.wait()
