"""The overlays, rendered."""

from __future__ import annotations

from functools import cache

import pytest

from tools.rehearsal import cluster as manifests
from tools.rehearsal.cluster import Cluster, Pod
from tools.rehearsal.rehearse import STOP_ORDER

OVERLAYS = sorted(path.name for path in manifests.OVERLAYS.iterdir())


@cache
def rendered(overlay: str) -> Cluster:
    """The manifests of an overlay; skips the test where nothing can render them."""
    if not manifests.renderers():
        pytest.skip("neither kubectl nor kustomize is installed; .ci/run installs one")
    return Cluster(manifests.render(overlay))


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> str:
    """Every overlay in turn."""
    return str(request.param)


@pytest.fixture
def cluster(overlay: str) -> Cluster:
    """Its manifests and pods."""
    return rendered(overlay)


@pytest.fixture(params=STOP_ORDER)
def pod(request: pytest.FixtureRequest, cluster: Cluster) -> Pod:
    """One pod of each service in turn."""
    return next(pod for pod in cluster.pods if pod.component == request.param)
