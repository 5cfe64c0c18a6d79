"""The overlays, rendered."""

from __future__ import annotations

import shutil
import tempfile
from functools import cache
from pathlib import Path

import pytest
import yaml

from tools.rehearsal import cluster as manifests
from tools.rehearsal.cluster import Cluster, Pod

SERVICES = ("scheduler", "worker", "frontend")
"""What every overlay has."""
OVERLAYS = sorted(path.name for path in manifests.OVERLAYS.iterdir())
COMPONENTS = sorted(path.name for path in (manifests.OVERLAYS.parent / "components").iterdir())


@cache
def rendered(overlay: str) -> Cluster:
    """The manifests of an overlay; skips the test where nothing can render them."""
    if not manifests.renderers():
        pytest.skip("neither kubectl nor kustomize is installed; .ci/run installs one")
    return Cluster(manifests.render(manifests.OVERLAYS / overlay))


@cache
def rendered_with(component: str, overlay: str) -> Cluster:
    """An overlay that takes in one of the components, or several: `a+b`."""
    with tempfile.TemporaryDirectory() as folder:
        overlays = write_with(component, overlay, Path(folder))
        return Cluster(manifests.render(overlays / overlay))


def write_with(component: str, overlay: str, folder: Path) -> Path:
    """A copy of the overlays, one of which takes in a component, or several: `a+b`. Skips the test where nothing can
    render it."""
    if not manifests.renderers():
        pytest.skip("neither kubectl nor kustomize is installed; .ci/run installs one")
    copy = folder / "k8s"
    shutil.copytree(manifests.OVERLAYS.parent, copy)
    path = copy / "overlays" / overlay / "kustomization.yaml"
    kustomization = yaml.safe_load(path.read_text())
    kustomization.setdefault("components", []).extend(
        f"../../components/{name}" for name in component.split("+")
    )
    path.write_text(yaml.safe_dump(kustomization))
    return copy / "overlays"


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> str:
    """Every overlay in turn."""
    return str(request.param)


@pytest.fixture
def cluster(overlay: str) -> Cluster:
    """Its manifests and pods."""
    return rendered(overlay)


@pytest.fixture(params=[*SERVICES, "frontend-grpc"])
def pod(request: pytest.FixtureRequest, cluster: Cluster) -> Pod:
    """One pod of each service in turn, frontends of HTTP and of gRPC."""
    return next(pod for pod in cluster.pods if pod.name.rpartition("-")[0] == f"signalbox-{request.param}")
