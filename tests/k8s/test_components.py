"""Every component on top of an overlay: valid to the field, and what every overlay keeps."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from frontend_svc.config import FrontendSettings
from frontend_svc.server import Frontend
from signalbox.telemetry import attributes
from tests.k8s.conftest import COMPONENTS, SERVICES, rendered_with
from tests.k8s.test_manifests import (  # noqa: F401
    settings_of,
    test_containers_have_requests_and_limits,
    test_every_document_says_what_it_belongs_to,
    test_ports_are_those_of_the_settings,
    test_selectors_match_their_own_pods_only,
    test_services_lead_to_ports_of_pods,
    test_the_grace_period_is_above_pre_stop_and_drain,
)
from tests.k8s.valid import custom_kinds, validate
from tools.rehearsal.cluster import Cluster, Pod

NEEDS = {"model-image": "1.31"}
"""The first version that knows what a component has, where that is not every version we run on."""
COMMON = sorted(
    set(COMPONENTS) - {"ranks", "relay", "standby", "relay-certificates", "monitoring-certificates"}
)
"""Those three have tests of their own; the others stand behind others."""
COMMON.append("certificates+relay+relay-certificates")


@pytest.fixture(params=COMMON)
def component(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cluster(component: str) -> Cluster:
    return rendered_with(component, "cpu-demo")


@pytest.fixture(params=SERVICES)
def pod(request: pytest.FixtureRequest, cluster: Cluster) -> Pod:
    return next(pod for pod in cluster.pods if pod.component == request.param)


def only(component: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("component", [component], indirect=True)


@pytest.mark.parametrize("version", ["1.30", "latest"])
def test_every_document_is_valid(component: str, cluster: Cluster, version: str) -> None:
    for document in cluster.documents:
        validate(document, *([] if version == "latest" else [NEEDS.get(component, version)]))


@only("gateway")
def test_a_field_that_nobody_knows_is_found(cluster: Cluster) -> None:
    for kind in (kind for _, kind in custom_kinds()):
        for document in cluster.of_kind(kind):
            wrong = copy.deepcopy(document)
            wrong["spec"]["parentRef"] = []
            with pytest.raises(jsonschema.ValidationError, match="parentRef"):
                validate(wrong)
            wrong = copy.deepcopy(document)
            wrong["metadata"]["label"] = {}
            with pytest.raises(Exception, match="label"):
                validate(wrong)


@only("drain")
def test_workers_that_go_end_their_requests_first(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    (worker,) = (pod for pod in cluster.pods if pod.component == "worker")
    assert settings_of(worker, cluster, monkeypatch).drain_time_s >= 60


def scalers_of(cluster: Cluster, kind: str) -> list[dict[str, Any]]:
    """Autoscalers of what is of a kind."""
    scalers = cluster.of_kind("HorizontalPodAutoscaler", "ScaledObject")
    return [each for each in scalers if each["spec"]["scaleTargetRef"]["kind"] == kind]


@only("hpa")
def test_each_deployment_of_frontends_has_an_autoscaler_of_its_own(cluster: Cluster) -> None:
    """What comes to the gRPC port starts no pods for HTTP, and the other way round."""
    frontends = [each for each in cluster.of_kind("Deployment") if "-frontend" in each["metadata"]["name"]]
    scalers = {
        each["spec"]["scaleTargetRef"]["name"]: each["spec"] for each in scalers_of(cluster, "Deployment")
    }
    assert sorted(scalers) == sorted(each["metadata"]["name"] for each in frontends)
    assert {"signalbox-frontend", "signalbox-frontend-grpc"} <= scalers.keys()
    for deployment in frontends:
        assert "replicas" not in deployment["spec"], "applied again they would undo what was scaled"
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        spec = scalers[deployment["metadata"]["name"]]
        (metric,) = spec["metrics"]
        assert metric["resource"]["name"] in container["resources"]["requests"], "a share of nothing"
        assert 2 <= spec["minReplicas"] < spec["maxReplicas"]


@pytest.mark.parametrize("component", ["hpa", "keda"], indirect=True)
def test_an_autoscaler_has_the_number_of_workers_to_itself(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Manifests that are applied again do not undo it, and whoever goes drains first."""
    workers = cluster.find("StatefulSet", "signalbox-worker")
    assert "replicas" not in workers["spec"]
    (scaler,) = scalers_of(cluster, "StatefulSet")
    target = scaler["spec"]["scaleTargetRef"]
    assert {name: target[name] for name in ("apiVersion", "kind", "name")} == {
        "apiVersion": workers["apiVersion"],
        "kind": workers["kind"],
        "name": workers["metadata"]["name"],
    }
    (worker,) = (pod for pod in cluster.pods if pod.component == "worker")
    drain_s = settings_of(worker, cluster, monkeypatch).drain_s
    advanced = scaler["spec"].get("advanced", {}).get("horizontalPodAutoscalerConfig", scaler["spec"])
    assert drain_s > 0 and advanced["behavior"]["scaleDown"]["stabilizationWindowSeconds"] >= 300


@only("keda")
def test_keda_asks_for_metrics_that_the_scheduler_has(cluster: Cluster) -> None:
    (scaler,) = cluster.of_kind("ScaledObject")
    queries = " ".join(trigger["metadata"]["query"] for trigger in scaler["spec"]["triggers"])
    for name in (attributes.METRIC_WAITING_TOKENS, attributes.METRIC_BLOCKS, attributes.METRIC_BLOCKS_TOTAL):
        assert f"{name})" in queries or f"{name}{{" in queries


@only("hpa")
def test_the_adapter_in_the_documents_makes_what_the_autoscaler_reads(cluster: Cluster) -> None:
    (scaler,) = scalers_of(cluster, "StatefulSet")
    text = (Path(__file__).parents[2] / "docs/operations.md").read_text()
    for metric in scaler["spec"]["metrics"]:
        assert f"as: {metric['external']['metric']['name']}" in text
    assert attributes.METRIC_WAITING_TOKENS in text and f'{attributes.METRIC_BLOCKS}{{state="held"' in text


def public_paths(cluster: Cluster) -> list[str]:
    """Prefixes that come in from outside."""
    routes = [
        match
        for route in cluster.of_kind("HTTPRoute")
        for rule in route["spec"]["rules"]
        for match in rule["matches"]
    ]
    ingresses = [
        path["path"]
        for ingress in cluster.of_kind("Ingress")
        for rule in ingress["spec"]["rules"]
        for path in rule["http"]["paths"]
        if path["pathType"] == "Prefix"
    ]
    return [match["path"]["value"] for match in routes if match["path"]["type"] == "PathPrefix"] + ingresses


@pytest.mark.parametrize("component", ["gateway", "ingress", "inference-pool"], indirect=True)
async def test_every_api_comes_in_and_metrics_page_and_board_do_not(cluster: Cluster) -> None:
    prefixes = public_paths(cluster)

    def comes_in(path: str) -> bool:
        return any(path == prefix or path.startswith(prefix + "/") for prefix in prefixes)

    inside = {
        "/",
        "/docs",
        "/board/events",
        "/metrics",
        "/health",
        "/live",
        "/ready",
        "/ping",
        "/load",
        "/version",
    }
    paths = await all_paths()
    assert inside < paths
    assert {path for path in paths if not comes_in(path)} == inside


async def all_paths() -> set[str]:
    """Paths of everything that a frontend serves over HTTP."""
    frontend = Frontend(FrontendSettings(http="127.0.0.1:0", grpc="127.0.0.1:0", drain_s=0))
    await frontend.start()
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{frontend.http_port}") as http:
            return set((await http.get("/openapi.json")).json()["paths"])
    finally:
        await frontend.stop()


@pytest.mark.parametrize("component", ["gateway", "ingress", "inference-pool"], indirect=True)
def test_routes_lead_to_services_and_pools_that_are_there(cluster: Cluster) -> None:
    backends = [
        backend
        for route in cluster.of_kind("HTTPRoute", "GRPCRoute")
        for rule in route["spec"]["rules"]
        for backend in rule["backendRefs"]
    ]
    for ingress in cluster.of_kind("Ingress"):
        for rule in ingress["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                service = path["backend"]["service"]
                backends.append({"name": service["name"], "port": service["port"]["name"]})
    assert backends
    for backend in backends:
        if backend.get("kind") == "InferencePool":
            pool = cluster.find("InferencePool", backend["name"])["spec"]
            selected = pool["selector"]["matchLabels"].items()
            members = [pod for pod in cluster.pods if selected <= pod.template["metadata"]["labels"].items()]
            ports = {entry["name"]: entry["containerPort"] for entry in members[0].container["ports"]}
            assert {pod.component for pod in members} == {"frontend"}
            assert [port["number"] for port in pool["targetPorts"]] == [ports["http"]]
        else:
            assert cluster.addresses(cluster.find("Service", backend["name"]), backend["port"])


@pytest.mark.parametrize("component", ["gateway", "inference-pool"], indirect=True)
def test_a_name_has_routes_of_one_kind(cluster: Cluster) -> None:
    """The Gateway API takes only the older of an HTTPRoute and a GRPCRoute of one name."""
    listeners = {each["name"]: each for each in cluster.find("Gateway", "signalbox")["spec"]["listeners"]}
    names = []
    for route in cluster.of_kind("HTTPRoute", "GRPCRoute"):
        (parent,) = route["spec"]["parentRefs"]
        assert listeners[parent["sectionName"]]["hostname"] in route["spec"]["hostnames"]
        names += route["spec"]["hostnames"]
    assert len(names) == len(set(names)) == len(listeners)


@only("inference-pool")
def test_frontends_of_a_pool_show_what_pickers_read(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pod in cluster.pods:
        if pod.component == "frontend":
            assert settings_of(pod, cluster, monkeypatch).ring_metrics


@pytest.mark.parametrize("component", ["model-claim", "model-image", "model-download"], indirect=True)
def test_models_are_read_only_where_services_read_them(cluster: Cluster) -> None:
    for pod in (pod for pod in cluster.pods if pod.component != "scheduler"):
        (mount,) = (mount for mount in pod.container["volumeMounts"] if mount["name"] == "models")
        assert (mount["mountPath"], mount["readOnly"]) == ("/models", True)
        assert [volume["name"] for volume in pod.spec["volumes"]].count("models") == 1


@only("model-download")
def test_models_are_fetched_with_what_the_image_has_to_where_they_are_read(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pod in (pod for pod in cluster.pods if pod.component != "scheduler"):
        (fetch,) = pod.spec["initContainers"]
        assert fetch["image"] == pod.container["image"]
        assert fetch["securityContext"] == pod.container["securityContext"]
        target = next(part for part in fetch["args"] if part.startswith("--local-dir="))
        with monkeypatch.context() as patch:
            assert settings_of(pod, cluster, patch).model == Path(target.removeprefix("--local-dir="))
        assert ("--include=*.safetensors" in fetch["args"]) is (pod.component == "worker")
