"""Every overlay with every component: services start with what their pods say, and find the files that it names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import pytest

from tests.k8s.conftest import COMPONENTS, OVERLAYS, rendered_with
from tests.k8s.test_manifests import listens_of, port_of, settings_of
from tests.k8s.valid import validate
from tools.rehearsal.cluster import Cluster
from tools.rehearsal.environment import IMAGE_PATHS, environment_of

INCLUDED = {"gpu": {"model-claim"}}
"""Components that an overlay has taken in."""
TOGETHER = (
    "certificates+relay+relay-certificates",
    "certificates+relay+relay-certificates+monitoring+monitoring-certificates",
    "+".join(sorted({"api-keys", "certificates", "files", "standby"})),
)
MODELS = ("model-claim", "model-download", "model-image")
CASES = [
    (overlay, component)
    for overlay in OVERLAYS
    for component in (*COMPONENTS, *TOGETHER)
    if component not in {"relay-certificates", "monitoring-certificates"}
    and component not in INCLUDED.get(overlay, ())
]


@pytest.fixture(params=CASES, ids="-".join)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    overlay, component = request.param
    return rendered_with(component, overlay)


def test_the_services_read_what_their_pods_say(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for pod in cluster.pods:
        with monkeypatch.context() as its_own:
            settings = settings_of(pod, cluster, its_own)
        ports = {entry["name"]: entry["containerPort"] for entry in pod.container["ports"]}
        assert ports == {name: port_of(getattr(settings, field)) for name, field in listens_of(pod).items()}
        is_tls = bool(settings.metrics) and not settings.plaintext_metrics
        assert pod.template["metadata"]["annotations"].get("prometheus.io/scheme") == (
            "https" if is_tls else None
        )


def test_every_document_is_valid(cluster: Cluster) -> None:
    """To the field, by the schemas; `validate` raises."""
    for document in cluster.documents:
        validate(document)


def test_every_volume_has_one_source_and_is_mounted(cluster: Cluster) -> None:
    for pod in cluster.pods:
        volumes = pod.spec.get("volumes", [])
        for volume in volumes:
            assert len(volume.keys() - {"name"}) == 1, volume
        mounted = {mount["name"] for container in containers(pod.spec) for mount in mounts(container)}
        assert mounted == {volume["name"] for volume in volumes}


def test_files_that_settings_name_are_in_the_pod(cluster: Cluster) -> None:
    for pod in cluster.pods:
        folders = [*IMAGE_PATHS, *(mount["mountPath"] for mount in mounts(pod.container))]
        values = [*environment_of(pod, cluster).values(), *pod.container.get("args", [])]
        for path in (path for value in values for path in paths(value)):
            assert any(path.is_relative_to(folder) for folder in folders), f"{pod.name}: {path}"


@pytest.mark.parametrize("component", MODELS)
def test_a_model_from_elsewhere_takes_the_place_of_the_one_before(component: str) -> None:
    """Two sources of one volume are refused when pods are made, and by nothing before."""
    for first in MODELS:
        if first != component:
            worker = next(
                pod for pod in rendered_with(f"{first}+{component}", "cpu-demo").pods if "worker" in pod.name
            )
            (models,) = (volume for volume in worker.spec["volumes"] if volume["name"] == "models")
            alone = next(pod for pod in rendered_with(component, "cpu-demo").pods if "worker" in pod.name)
            assert models in alone.spec["volumes"]


def containers(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A pod's containers, those of its start first."""
    yield from spec.get("initContainers", [])
    yield from spec["containers"]


def mounts(container: dict[str, Any]) -> list[dict[str, Any]]:
    """What a container mounts."""
    return list(container.get("volumeMounts", []))


def paths(value: str) -> Iterator[PurePosixPath]:
    """Absolute paths in a variable or an argument."""
    for part in value.replace("=", ",").split(","):
        if part.startswith("/"):
            yield PurePosixPath(part)
