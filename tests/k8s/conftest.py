"""The overlays, rendered."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest

from tools.rehearsal import cluster as manifests
from tools.rehearsal.cluster import Cluster, Pod

SERVICES = ("scheduler", "worker", "frontend")
"""What every overlay has."""
OVERLAYS = sorted(path.name for path in manifests.OVERLAYS.iterdir())


@cache
def rendered(overlay: str) -> Cluster:
    """The manifests of an overlay; skips the test where nothing can render them."""
    if not manifests.renderers():
        pytest.skip("neither kubectl nor kustomize is installed; .ci/run installs one")
    return Cluster(manifests.render(overlay))


def render_with(component: str, folder: Path, overlay: str, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """An overlay that takes in one of the components. The overlays in `folder` are those there are from then on."""
    if not manifests.renderers():
        pytest.skip("neither kubectl nor kustomize is installed; .ci/run installs one")
    copy = folder / "k8s"
    shutil.copytree(manifests.OVERLAYS.parent, copy)
    with (copy / "overlays" / overlay / "kustomization.yaml").open("a") as file:
        file.write(f"\ncomponents: [../../components/{component}]\n")
    monkeypatch.setattr(manifests, "OVERLAYS", copy / "overlays")
    return Cluster(manifests.render(overlay))


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> str:
    """Every overlay in turn."""
    return str(request.param)


@pytest.fixture
def cluster(overlay: str) -> Cluster:
    """Its manifests and pods."""
    return rendered(overlay)


@pytest.fixture(params=SERVICES)
def pod(request: pytest.FixtureRequest, cluster: Cluster) -> Pod:
    """One pod of each service in turn."""
    return next(pod for pod in cluster.pods if pod.component == request.param)
