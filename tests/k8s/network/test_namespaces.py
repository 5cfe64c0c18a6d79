"""The ring in a network that keeps to the NetworkPolicies: a namespace for each pod, nftables between them, mutual TLS.

The overlay cpu-demo with a standby, a relay and certificates, two workers with simulated models, and three who do not
belong to the ring.
"""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from signalbox.runtime.process import PARENT
from tests.k8s.conftest import write_with
from tests.k8s.network.api import PORT
from tests.k8s.network.namespaces import why_not
from tests.k8s.network.pods import API, Pods
from tools.rehearsal.cluster import Cluster, render
from tools.rehearsal.policies import Peer

CLIENT, INTRUDER, NEIGHBOUR, PROMETHEUS = "client", "intruder", "neighbour", "prometheus"
OUTSIDERS = {
    CLIENT: Peer({"app": "gateway"}, "gateway"),
    # In the ring's own namespace, with other labels; and with a worker's labels in another namespace.
    INTRUDER: Peer({"app": "intruder"}),
    NEIGHBOUR: Peer(
        {"app.kubernetes.io/name": "signalbox", "app.kubernetes.io/component": "worker"}, "elsewhere"
    ),
    PROMETHEUS: Peer({"app": "prometheus"}, "monitoring"),
    API: Peer({}, ""),
}
PUBLIC = {("frontend", 8000), ("frontend", 7301)}
REACHES = {
    "scheduler": {("scheduler", 7300), (API, PORT)},
    "relay": {("scheduler", 7300)},
    "worker": {("relay", 7320)},
    "frontend": {("scheduler", 7300), ("worker", 7310)},
    CLIENT: {*PUBLIC, (API, PORT)},
    INTRUDER: {(API, PORT)},
    NEIGHBOUR: {(API, PORT)},
    PROMETHEUS: {
        ("frontend", 8000),
        ("frontend", 9330),
        ("scheduler", 9300),
        ("worker", 9310),
        ("relay", 9320),
        (API, PORT),
    },
    API: set(),
}
"""docs/operations.md's table of who may dial whom, written once more: not derived from the manifests."""
SECRET_LINKS = {"scheduler": 7300, "relay": 7320, "worker": 7310}
METRICS = {"scheduler": 9300, "relay": 9320, "worker": 9310}
COMPONENTS = "standby+certificates+relay+relay-certificates"
ROUNDS = int(os.environ.get("SIGNALBOX_UPGRADES", "0"))
SETTLE_S = 2.0
"""Streams go on for so long on what has come back before the next pod is stopped."""


def manifests(folder: Path) -> Cluster:
    """Rendered with all components, and two workers."""
    documents = copy.deepcopy(render(write_with(COMPONENTS, "cpu-demo", folder) / "cpu-demo"))
    Cluster(documents).find("StatefulSet", "signalbox-worker")["spec"]["replicas"] = 2
    return Cluster(documents)


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    """All running, policies in force."""
    if reason := why_not():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("network")
    with Pods(manifests(directory), OUTSIDERS, directory) as pods:
        pods.network.enforce(pods.allowed())
        pods.start_api(pods.cluster.find("Role", "signalbox-scheduler")["rules"])
        for pod in pods.cluster.pods:
            pods.start(pod)
        wait_until_ready(pods)
        yield pods
        pods.check()


def wait_until_ready(pods: Pods) -> None:
    """A client reaches both frontends, and both say two workers."""
    pods.run_client(CLIENT, "ready", str(len(pods.of("worker"))), *public(pods))


def public(pods: Pods) -> list[str]:
    return [f"{pod.address}:7301" for pod in pods.of("frontend") if 7301 in pods.listening(pod)]


@contextmanager
def load(pods: Pods) -> Iterator[dict[str, Any]]:
    """Streams through both frontends, one behind the other in six places; behind the block, what became of them."""
    command = pods.program("clients", CLIENT, "load", *public(pods))
    variables = {**os.environ, PARENT: str(os.getpid())}
    seen: dict[str, Any] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as client:
        try:
            yield seen
        finally:
            client.send_signal(signal.SIGTERM)
        said, _ = client.communicate(timeout=90)
    seen |= json.loads(said)


def tried(pods: Pods, source: str) -> dict[tuple[str, int], set[str]]:
    """What became of dials to all ports of all others, by kind of pod and port."""
    components = {pod.name: pod.component for pod in pods.cluster.pods}
    targets = [(name, port) for name, port in pods.ports() if name != source]
    answers = pods.dial(source, [(pods.peers[name].address, port) for name, port in targets])
    found: dict[tuple[str, int], set[str]] = {}
    for (name, port), answer in zip(targets, answers, strict=True):
        found.setdefault((components.get(name, name), port), set()).add(answer)
    return found


@pytest.mark.timeout(180)
def test_each_pod_reaches_whom_the_policies_name_and_nobody_else(pods: Pods) -> None:
    """R1, by a TCP connection from every pod to every port of every other one."""
    components = {pod.name: pod.component for pod in pods.cluster.pods}
    for source in pods.peers:
        reached = REACHES[components.get(source, source)]
        for target, answers in tried(pods, source).items():
            assert answers == {"connected" if target in reached else "prohibited"}, (source, target)


def test_without_policies_an_intruder_reaches_all_and_is_met_by_tls(pods: Pods) -> None:
    """TL1: so it was the policies that kept it out; and behind them stands another lock."""
    links = [(pod.address, SECRET_LINKS[pod.component]) for name in SECRET_LINKS for pod in pods.of(name)]
    own = [str(pods.certificates / f"frontend.{kind}") for kind in ("crt", "key")]
    pods.network.open()
    try:
        assert set().union(*tried(pods, INTRUDER).values()) == {"connected"}
        assert set(pods.dial(INTRUDER, links, "--tls")) == {"turned away"}
        assert set(pods.dial(INTRUDER, links, "--tls", *own)) == {"welcome"}
    finally:
        pods.network.enforce(pods.allowed())
    assert set(pods.dial(INTRUDER, links)) == {"prohibited"}


def test_prometheus_reads_metrics_over_tls_and_knows_whom_it_reads(pods: Pods) -> None:
    """TL3, TL8."""
    ca = str(pods.certificates / "ca.crt")
    for name, port in METRICS.items():
        ports = [(pod.address, port) for pod in pods.of(name)]
        assert set(pods.dial(PROMETHEUS, ports, "--scrape", f"{name}.signalbox", ca)) == {"metrics"}
        (wrong,) = set(pods.dial(PROMETHEUS, ports, "--scrape", "frontend.signalbox", ca))
        assert "Hostname mismatch" in wrong


def test_a_request_streams_through_both_frontends(pods: Pods) -> None:
    for address in public(pods):
        seen = pods.run_client(CLIENT, "once", address)
        assert (seen["num_whole"], seen["broken"]) == (1, [])


def shown(pods: Pods) -> dict[tuple[str, int], set[str]]:
    """The certificates at all ports with TLS, by kind of pod and port."""
    found: dict[tuple[str, int], set[str]] = {}
    for ports, source in ((SECRET_LINKS, None), (METRICS, PROMETHEUS)):
        for name, port in ports.items():
            dialling = source or pods.of("worker" if name == "relay" else "frontend")[0].name
            targets = [(pod.address, port) for pod in pods.of(name)]
            found[name, port] = set(pods.dial(dialling, targets, "--shown"))
    return found


def test_renewed_secrets_are_shown_and_no_stream_breaks(pods: Pods) -> None:
    """TL7: the mounts of all pods get new certificates under streams; then every worker finds its relay anew, and the
    relay its scheduler, by them."""
    before = shown(pods)
    with load(pods) as seen:
        time.sleep(SETTLE_S)
        pods.renew()
        after = shown(pods)
        (relay,) = pods.of("relay")
        pods.stop(relay)
        pods.start(relay)
        wait_until_ready(pods)
        time.sleep(SETTLE_S)
    assert all(len(after[at]) == 1 and not after[at] & before[at] for at in before)
    assert seen["broken"] == [] and seen["num_whole"] > 0


def test_a_scheduler_that_stops_hands_the_lease_to_the_other(pods: Pods) -> None:
    """B1: by the Lease of the API server, with no more than its Role lets it."""
    before = pods.lease()
    address = before["holderIdentity"].rpartition("_")[0]
    (leader,) = (pod for pod in pods.of("scheduler") if address == f"{pod.address}:7300")
    pods.stop(leader)
    pods.start(leader)
    wait_until_ready(pods)
    after = pods.lease()
    (other,) = (pod for pod in pods.of("scheduler") if pod is not leader)
    assert after["holderIdentity"].startswith(f"{other.address}:7300_")
    assert after["leaseTransitions"] == before["leaseTransitions"] + 1


@pytest.mark.skipif(
    not ROUNDS, reason="takes 40 s a round: SIGNALBOX_UPGRADES says how many, as in make soak"
)
@pytest.mark.timeout(60 + 180 * ROUNDS)
def test_a_rolling_upgrade_breaks_no_stream(pods: Pods) -> None:
    """Every pod is stopped as the kubelet does it and started again, one behind the other, under streams."""
    with load(pods) as seen:
        for component in ("scheduler", "relay", "worker", "frontend") * ROUNDS:
            for pod in pods.of(component):
                time.sleep(SETTLE_S)
                pods.stop(pod)
                pods.start(pod)
                wait_until_ready(pods)
        time.sleep(SETTLE_S)
    print(seen)
    assert seen["broken"] == []
    assert seen["num_whole"] > ROUNDS * len(pods.cluster.pods)
