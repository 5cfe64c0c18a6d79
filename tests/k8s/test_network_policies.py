"""The NetworkPolicies let through what the services' own settings ask for, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from tests.k8s.conftest import rendered, rendered_with
from tests.k8s.test_manifests import settings_of
from tools.rehearsal.cluster import Cluster, Pod, container_port
from tools.rehearsal.environment import NAMESPACE
from tools.rehearsal.policies import Peer, allowed_dials, allows, peer_of

STRANGER = Peer({"app": "stranger"})
"""A pod of the same namespace that is none of ours."""
NEIGHBOUR = Peer(
    {"app.kubernetes.io/name": "signalbox", "app.kubernetes.io/component": "worker"}, "elsewhere"
)
"""A worker of another ring, in a namespace of its own."""
OUTSIDE = Peer({}, "")
GATEWAY = Peer({"app": "gateway"}, "gateway")
PROMETHEUS = Peer({"app": "prometheus"}, "monitoring", ports={"web": 9090})
COLLECTOR = Peer({"app": "collector"}, "observability")
NAMES = Peer({"k8s-app": "kube-dns"}, "kube-system")
API_SERVER = Peer({}, "", "198.51.100.7")

Dial = tuple[str, str, int]


@pytest.fixture(params=["", "relay", "standby"])
def ring(request: pytest.FixtureRequest, overlay: str) -> Cluster:
    """Every overlay, by itself and with each component that changes who dials whom; with a second worker."""
    cluster = rendered_with(request.param, overlay) if request.param else rendered(overlay)
    larger = Cluster(copy.deepcopy(cluster.documents))
    larger.find("StatefulSet", "signalbox-worker")["spec"]["replicas"] = 2
    return Cluster(larger.documents)


def of(cluster: Cluster, component: str) -> list[Pod]:
    return [pod for pod in cluster.pods if pod.component == component]


def dials_of_settings(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dial]:
    """What the services dial, as their settings say; names stand for all pods behind them."""
    by_address = {pod.address: pod for pod in cluster.pods}
    for pod in cluster.pods:
        with monkeypatch.context() as patch:
            settings = settings_of(pod, cluster, patch)
        if pod.component != "scheduler":
            host, _, port = settings.scheduler.rpartition(":")
            for address in cluster.addresses(cluster.find("Service", host), int(port)):
                target, _, number = address.rpartition(":")
                yield pod.name, by_address[target].name, int(number)
        if pod.component == "worker":
            for frontend in of(cluster, "frontend"):
                yield frontend.name, pod.name, container_port(pod, "grpc")
        for other in of(cluster, "scheduler"):
            # A standby and its leader.
            if pod.component == "scheduler" and other is not pod:
                yield pod.name, other.name, container_port(other, "grpc")


def test_pods_may_dial_whom_their_settings_name_and_nobody_else(
    ring: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R1: the scheduler dials nobody, workers dial the scheduler, frontends both."""
    allowed = {(source.name, target.name, port) for source, target, port in allowed_dials(ring)}
    assert allowed == set(dials_of_settings(ring, monkeypatch))


@pytest.mark.parametrize("peer", [STRANGER, NEIGHBOUR, OUTSIDE], ids=["stranger", "neighbour", "outside"])
def test_others_reach_nothing(ring: Cluster, peer: Peer) -> None:
    """AK11: no public port is open to anywhere."""
    assert reached_by(ring, peer) == set()


def test_a_gateway_reaches_the_public_ports_only(ring: Cluster) -> None:
    """Not those of probes, which no policy opens."""
    assert reached_by(ring, GATEWAY) == {("frontend", 8000), ("frontend", 7301)}


def reached_by(ring: Cluster, peer: Peer) -> set[tuple[str, int]]:
    return {
        (pod.component, port)
        for pod in ring.pods
        for port in peer_of(pod).ports.values()
        if allows(ring, peer, peer_of(pod), port)
    }


def test_prometheus_reaches_every_port_with_metrics(ring: Cluster) -> None:
    for pod in ring.pods:
        port = int(pod.template["metadata"]["annotations"]["prometheus.io/port"])
        assert allows(ring, PROMETHEUS, peer_of(pod), port), pod.name
        reached = {
            number for number in peer_of(pod).ports.values() if allows(ring, PROMETHEUS, peer_of(pod), number)
        }
        assert reached == {port}


def test_pods_reach_names_and_a_collector_and_nothing_else_outside(ring: Cluster) -> None:
    has_lease = len(of(ring, "scheduler")) > 1
    for pod in ring.pods:
        own = peer_of(pod)
        assert allows(ring, own, NAMES, 53, "UDP") and allows(ring, own, NAMES, 53)
        assert allows(ring, own, COLLECTOR, 4317)
        assert not allows(ring, own, PROMETHEUS, 9090)
        assert not allows(ring, own, OUTSIDE, 80)
        assert not allows(ring, own, STRANGER, 53)
        for port in (443, 6443):
            assert allows(ring, own, API_SERVER, port) is (has_lease and pod.component == "scheduler"), (
                pod.name
            )


def test_a_model_of_the_hub_opens_https_for_those_who_fetch_it() -> None:
    cluster = rendered_with("model-download", "cpu-demo")
    open_to_hub = {pod.component for pod in cluster.pods if allows(cluster, peer_of(pod), OUTSIDE, 443)}
    assert open_to_hub == {"worker", "frontend"}
    assert {
        namespace
        for policy in cluster.of_kind("NetworkPolicy")
        if (namespace := policy["metadata"].get("namespace", NAMESPACE))
    } == {NAMESPACE}
