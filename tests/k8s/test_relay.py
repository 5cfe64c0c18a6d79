"""The component that puts a relay on each node, on top of an overlay: what every overlay keeps, the relay keeps too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.k8s.conftest import OVERLAYS, SERVICES, rendered_with, write_with
from tests.k8s.test_manifests import (  # noqa: F401
    settings_of,
    test_containers_have_requests_and_limits,
    test_every_document_is_valid,
    test_every_document_says_what_it_belongs_to,
    test_no_service_gets_the_settings_of_another,
    test_no_variables_come_from_services,
    test_pods_have_an_account_without_a_token,
    test_pods_keep_to_the_restricted_standard,
    test_pods_listen_for_others,
    test_ports_are_those_of_the_settings,
    test_probes_ask_a_port_that_strangers_do_not_reach,
    test_scrapes_go_to_a_port_with_metrics,
    test_selectors_match_their_own_pods_only,
    test_services_lead_to_ports_of_pods,
    test_settings_are_real_ones,
    test_the_grace_period_is_above_pre_stop_and_drain,
)
from tools.rehearsal.cluster import Cluster, Pod, container_port
from tools.rehearsal.rehearse import rehearse


@pytest.fixture
def overlay(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "cpu-demo"))


@pytest.fixture
def cluster(overlay: str) -> Cluster:
    """The overlay with the component."""
    return rendered_with("relay", overlay)


@pytest.fixture
def pod(cluster: Cluster) -> Pod:
    """The relay."""
    (relay,) = (pod for pod in cluster.pods if pod.component == "relay")
    return relay


def test_it_is_the_only_addition(cluster: Cluster) -> None:
    assert {pod.component for pod in cluster.pods} == {*SERVICES, "relay"}


def test_workers_dial_the_relay_of_their_node_and_the_relay_and_frontends_the_scheduler(
    cluster: Cluster, pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = f"{pod.address}:{container_port(pod, 'grpc')}"
    (scheduler,) = (pod for pod in cluster.pods if pod.component == "scheduler")
    central = f"{scheduler.address}:{container_port(scheduler, 'grpc')}"
    for dialling, expected in (("worker", relay), ("relay", central), ("frontend", central)):
        for other in (other for other in cluster.pods if other.component == dialling):
            host, _, port = settings_of(other, cluster, monkeypatch).scheduler.rpartition(":")
            assert cluster.resolve(host, int(port)) == expected
    assert cluster.find("Service", "signalbox-relay")["spec"]["internalTrafficPolicy"] == "Local"


def test_relays_are_told_apart(cluster: Cluster, pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings_of(pod, cluster, monkeypatch).relay_id == pod.name


@pytest.mark.parametrize("overlay", OVERLAYS, indirect=True)
def test_it_runs_from_the_image_of_the_workers_and_wherever_they_run(cluster: Cluster, pod: Pod) -> None:
    (worker,) = (pod for pod in cluster.pods if pod.component == "worker")
    assert pod.container["image"] == worker.container["image"]
    assert all(taint in pod.spec["tolerations"] for taint in worker.spec.get("tolerations", []))


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.timeout(290)
def test_requests_are_served_through_it(
    cluster: Cluster, pod: Pod, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "rehearsal"
    directory.mkdir(mode=0o755)
    rehearse(write_with("relay", "cpu-demo", tmp_path) / "cpu-demo", directory)
    assert f"relay {pod.name} attached" in next(directory.glob("*scheduler*.log")).read_text()
    assert f"{pod.name}: stopped" in capsys.readouterr().out
