"""What every overlay keeps, read from the rendered manifests and from the services' own settings."""

from __future__ import annotations

from typing import Any

import pytest

import signalbox
from frontend_svc.config import FrontendSettings
from scheduler_svc.config import SchedulerSettings
from signalbox.links import rpc
from signalbox.runtime import config
from signalbox.runtime.config import Settings
from tests.k8s.conftest import SERVICES
from tests.k8s.valid import LATEST, validate
from tools.rehearsal.cluster import Cluster, Pod, container_port
from tools.rehearsal.environment import environment_of
from worker_svc.config import WorkerSettings
from worker_svc.relay.config import RelaySettings
from worker_svc.worker import STOP_S

OLDEST = "1.30"
"""The first version whose clusters know the preStop sleep."""
SETTINGS: dict[str, type[Settings]] = {
    "scheduler": SchedulerSettings,
    "worker": WorkerSettings,
    "frontend": FrontendSettings,
    "relay": RelaySettings,
}
HEALTH_NAMES = {
    "scheduler": "signalbox.v1.SchedulerService",
    "worker": "signalbox.v1.WorkerService",
    "relay": "signalbox.v1.SchedulerService",
}
LISTENS = {
    "scheduler": {"grpc": "listen", "metrics": "metrics"},
    "worker": {"grpc": "listen", "metrics": "metrics"},
    "frontend-http": {"http": "http", "health": "health"},
    "frontend-grpc": {"grpc": "grpc", "metrics": "metrics", "health": "health"},
    "relay": {"grpc": "listen", "metrics": "metrics"},
}
"""The setting behind each named port."""
FACE = "signalbox.io/face"
AFTER_DRAIN_S = 5
"""For the farewell to cancelled requests (1 s), open connections (2 s) and the last spans (2 s)."""
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
RESTRICTED_VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim"}


def settings_of(pod: Pod, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The settings as the service itself would read them: unknown names and wrong values fail here."""
    for name, value in environment_of(pod, cluster).items():
        monkeypatch.setenv(name, value)
    return config.load(SETTINGS[pod.component], list(pod.container.get("args", [])))


def listens_of(pod: Pod) -> dict[str, str]:
    """The setting behind each port of a pod: a frontend's has one public face."""
    face = pod.template["metadata"]["labels"].get(FACE)
    return LISTENS[pod.component if face is None else f"{pod.component}-{face}"]


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@pytest.mark.parametrize("version", [OLDEST, LATEST])
def test_every_document_is_valid(cluster: Cluster, version: str) -> None:
    for document in cluster.documents:
        validate(document, version)


def test_the_three_services_are_there(cluster: Cluster) -> None:
    assert {pod.component for pod in cluster.pods} == set(SERVICES)


def test_settings_are_real_ones(pod: Pod, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    settings_of(pod, cluster, monkeypatch)


def test_no_service_gets_the_settings_of_another(pod: Pod, cluster: Cluster) -> None:
    others = tuple(f"SIGNALBOX_{name.upper()}_" for name in SETTINGS if name != pod.component)
    assert [name for name in environment_of(pod, cluster) if name.startswith(others)] == []


def test_no_variables_come_from_services(pod: Pod) -> None:
    assert pod.spec["enableServiceLinks"] is False


def test_ports_are_those_of_the_settings(pod: Pod, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(pod, cluster, monkeypatch)
    ports = {entry["name"]: entry["containerPort"] for entry in pod.container["ports"]}
    assert ports == {name: port_of(getattr(settings, field)) for name, field in listens_of(pod).items()}
    if pod.component == "frontend":
        assert len(settings.faces) == 1


def test_scrapes_go_to_a_port_with_metrics(pod: Pod) -> None:
    notes = pod.template["metadata"]["annotations"]
    port = container_port(pod, "metrics" if "metrics" in listens_of(pod) else "http")
    assert (notes["prometheus.io/scrape"], notes["prometheus.io/port"]) == ("true", str(port))


def test_pods_listen_for_others(pod: Pod, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(pod, cluster, monkeypatch)
    hosts = {getattr(settings, field).rpartition(":")[0] for field in listens_of(pod).values()}
    assert hosts == {"0.0.0.0"}


def test_services_lead_to_ports_of_pods(cluster: Cluster) -> None:
    for service in cluster.of_kind("Service"):
        for entry in service["spec"]["ports"]:
            assert cluster.addresses(service, entry["port"])


def test_everybody_finds_the_scheduler(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    (scheduler,) = (pod for pod in cluster.pods if pod.component == "scheduler")
    for pod in cluster.pods:
        if pod is not scheduler:
            host, _, port = settings_of(pod, cluster, monkeypatch).scheduler.rpartition(":")
            assert (
                cluster.resolve(host, int(port)) == f"{scheduler.address}:{container_port(scheduler, 'grpc')}"
            )


def test_workers_are_dialled_by_their_own_name(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for pod in (pod for pod in cluster.pods if pod.component == "worker"):
        settings = settings_of(pod, cluster, monkeypatch)
        assert settings.worker_id == pod.name
        host, _, port = settings.advertise.rpartition(":")
        assert cluster.resolve(host, int(port)) == f"{pod.address}:{port_of(settings.listen)}"
        service = cluster.find("Service", pod.subdomain)["spec"]
        assert service["clusterIP"] == "None"
        assert service["publishNotReadyAddresses"] is True


def test_one_scheduler_at_a_time(cluster: Cluster) -> None:
    deployment = cluster.find("Deployment", "signalbox-scheduler")["spec"]
    assert (deployment["replicas"], deployment["strategy"]["type"]) == (1, "Recreate")


def test_nodes_are_drained_one_worker_at_a_time(cluster: Cluster) -> None:
    selector = cluster.find("StatefulSet", "signalbox-worker")["spec"]["selector"]
    budget = cluster.find("PodDisruptionBudget", "signalbox-worker")["spec"]
    assert budget == {"maxUnavailable": 1, "selector": selector}


@pytest.mark.parametrize("kind", PROBES)
def test_probes_ask_a_port_that_strangers_do_not_reach(pod: Pod, kind: str) -> None:
    """By gRPC the ring's own, by HTTP a frontend's for probes alone."""
    if pod.component == "frontend":
        path = "/ready" if kind == "readinessProbe" else "/live"
        assert pod.container[kind]["httpGet"] == {"path": path, "port": "health"}
        return
    probe = pod.container[kind]["grpc"]
    assert probe["port"] == container_port(pod, "grpc")
    assert probe["service"] == (HEALTH_NAMES[pod.component] if kind == "readinessProbe" else rpc.LIVENESS)


def test_the_grace_period_is_above_pre_stop_and_drain(
    pod: Pod, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(pod, cluster, monkeypatch)
    drain_s = getattr(settings, "drain_time_s", getattr(settings, "drain_s", STOP_S))
    assert pod.spec["terminationGracePeriodSeconds"] >= pod.pre_stop_s + drain_s + AFTER_DRAIN_S


def test_frontends_wait_until_they_are_out_of_rotation(cluster: Cluster) -> None:
    assert all(pod.pre_stop_s > 0 for pod in cluster.pods if pod.component == "frontend")


def test_containers_have_requests_and_limits(pod: Pod) -> None:
    resources = pod.container["resources"]
    assert all({"cpu", "memory"} <= resources[group].keys() for group in ("requests", "limits"))


def test_pods_keep_to_the_restricted_standard(pod: Pod) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards"""
    assert pod.spec["securityContext"]["runAsNonRoot"] is True
    assert pod.spec["securityContext"]["runAsUser"] > 0
    assert pod.spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    context = pod.container["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    volumes = [next(kind for kind in volume if kind != "name") for volume in pod.spec.get("volumes", [])]
    assert set(volumes) <= RESTRICTED_VOLUMES
    assert not any(pod.spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))


def test_pods_have_an_account_without_a_token(pod: Pod, cluster: Cluster) -> None:
    account = cluster.find("ServiceAccount", pod.spec["serviceAccountName"])
    assert (account["automountServiceAccountToken"], pod.spec["automountServiceAccountToken"]) == (
        False,
        False,
    )


def test_images_are_those_of_this_version(pod: Pod) -> None:
    name, _, tag = pod.container["image"].partition(":")
    assert name == f"signalbox-{pod.component}"
    assert tag.partition("-")[0] == signalbox.__version__


@pytest.mark.parametrize("name", ["signalbox-frontend", "signalbox-frontend-grpc"])
def test_replicated_frontends_survive_a_node(cluster: Cluster, name: str) -> None:
    deployment = cluster.find("Deployment", name)["spec"]
    assert deployment["replicas"] >= 2
    selector = deployment["selector"]
    assert cluster.find("PodDisruptionBudget", name)["spec"] == {
        "maxUnavailable": 1,
        "selector": selector,
    }
    (spread,) = deployment["template"]["spec"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["labelSelector"]) == ("kubernetes.io/hostname", selector)


def test_selectors_match_their_own_pods_only(cluster: Cluster) -> None:
    for workload in cluster.of_kind("Deployment", "StatefulSet", "DaemonSet"):
        labels = workload["spec"]["selector"]["matchLabels"]
        selected = {
            pod.name.rpartition("-")[0]
            for pod in cluster.pods
            if labels.items() <= pod.template["metadata"]["labels"].items()
        }
        assert selected == {workload["metadata"]["name"]}


def test_every_document_says_what_it_belongs_to(cluster: Cluster) -> None:
    for document in cluster.documents:
        assert document["metadata"]["labels"]["app.kubernetes.io/part-of"] == "signalbox"
    for workload in cluster.of_kind("Deployment", "StatefulSet", "DaemonSet"):
        assert workload["metadata"]["labels"]["app.kubernetes.io/version"] == signalbox.__version__


@pytest.mark.parametrize("overlay", ["gpu"], indirect=True)
def test_gpu_workers_have_one_gpu_and_read_the_model_from_a_claim(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pod,) = (pod for pod in cluster.pods if pod.component == "worker")
    assert pod.container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert pod.spec["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    assert pod.spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]
    settings = settings_of(pod, cluster, monkeypatch)
    assert settings.device == "cuda"
    (mount,) = (
        mount for mount in pod.container["volumeMounts"] if settings.model.is_relative_to(mount["mountPath"])
    )
    (claim,) = (
        volume["persistentVolumeClaim"]["claimName"]
        for volume in pod.spec["volumes"]
        if volume["name"] == mount["name"]
    )
    assert cluster.find("PersistentVolumeClaim", claim)
    assert mount["readOnly"] is True
