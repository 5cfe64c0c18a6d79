"""The component with a second scheduler, on top of an overlay: what every overlay keeps, it keeps too."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler_svc.config import SchedulerSettings
from scheduler_svc.lease.spec import LeaseSpec, parse_lease
from tests.k8s.conftest import SERVICES, rendered_with, write_with
from tests.k8s.test_manifests import (  # noqa: F401
    OLDEST,
    settings_of,
    test_every_document_is_valid,
    test_every_document_says_what_it_belongs_to,
    test_no_service_gets_the_settings_of_another,
    test_pods_keep_to_the_restricted_standard,
    test_pods_listen_for_others,
    test_ports_are_those_of_the_settings,
    test_probes_ask_a_port_that_strangers_do_not_reach,
    test_selectors_match_their_own_pods_only,
    test_services_lead_to_ports_of_pods,
    test_settings_are_real_ones,
    test_the_grace_period_is_above_pre_stop_and_drain,
)
from tools.rehearsal.cluster import Cluster, Pod, container_port
from tools.rehearsal.environment import NAMESPACE
from tools.rehearsal.rehearse import rehearse

NAME = "signalbox-scheduler"
LEASE = "signalbox-leader"


@pytest.fixture
def overlay(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "cpu-demo"))


@pytest.fixture
def cluster(overlay: str) -> Cluster:
    """The overlay with the component."""
    return rendered_with("standby", overlay)


@pytest.fixture
def schedulers(cluster: Cluster) -> list[Pod]:
    return [pod for pod in cluster.pods if pod.component == "scheduler"]


@pytest.fixture
def pod(schedulers: list[Pod]) -> Pod:
    """One of the schedulers."""
    return schedulers[0]


@pytest.mark.parametrize("overlay", ["cpu-demo", "gpu"], indirect=True)
def test_there_are_two_schedulers_and_a_third_before_one_goes(
    cluster: Cluster, schedulers: list[Pod]
) -> None:
    """B1: a new pod stands by before an old one is told to stop."""
    assert len(schedulers) == 2 and {pod.component for pod in cluster.pods} == set(SERVICES)
    deployment = cluster.find("Deployment", NAME)["spec"]
    assert deployment["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }
    selector = deployment["selector"]
    assert cluster.find("PodDisruptionBudget", NAME)["spec"] == {"maxUnavailable": 1, "selector": selector}
    (spread,) = deployment["template"]["spec"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["labelSelector"]) == ("kubernetes.io/hostname", selector)


def test_they_want_one_lease_and_tell_their_own_address(
    cluster: Cluster, schedulers: list[Pod], monkeypatch: pytest.MonkeyPatch
) -> None:
    for pod in schedulers:
        settings = settings_of(pod, cluster, monkeypatch)
        assert isinstance(settings, SchedulerSettings)
        assert parse_lease(settings.lease) == LeaseSpec("kubernetes", NAMESPACE, LEASE)
        port = container_port(pod, "grpc")
        assert settings.address(port) == f"{pod.address}:{port}"


def test_only_schedulers_may_use_the_api_server_and_only_for_that_lease(cluster: Cluster) -> None:
    for pod in cluster.pods:
        assert pod.spec["automountServiceAccountToken"] is (pod.component == "scheduler"), pod.name
    assert cluster.find("Role", NAME)["rules"] == [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [LEASE],
            "verbs": ["get", "update"],
        },
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
    ]
    binding = cluster.find("RoleBinding", NAME)
    assert binding["roleRef"]["name"] == NAME
    (account,) = {pod.spec["serviceAccountName"] for pod in cluster.pods if pod.component == "scheduler"}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account}]


def test_everybody_dials_the_service_behind_which_both_stand(
    cluster: Cluster, schedulers: list[Pod], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B3: whoever answers there says which pod leads."""
    both = {f"{pod.address}:{container_port(pod, 'grpc')}" for pod in schedulers}
    for pod in (pod for pod in cluster.pods if pod not in schedulers):
        host, _, port = settings_of(pod, cluster, monkeypatch).scheduler.rpartition(":")
        assert set(cluster.addresses(cluster.find("Service", host), int(port))) == both


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(290)
def test_requests_are_served_whichever_leads(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a locked file in the Lease's place."""
    directory = tmp_path / "rehearsal"
    directory.mkdir(mode=0o755)
    rehearse(write_with("standby", "cpu-demo", tmp_path) / "cpu-demo", directory)
    logs = [path.read_text() for path in sorted(directory.glob("*scheduler*.log"))]
    assert len(logs) == 2 and all("standing by for the lease" in log for log in logs)
    assert sum("leading with term" in log for log in logs) >= 1
    assert capsys.readouterr().out.count("signalbox-scheduler") > 0
