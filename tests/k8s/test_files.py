"""The component that gives frontends a volume for files and batches, on top of an overlay."""

from __future__ import annotations

from pathlib import Path

import pytest

from frontend_svc.config import FrontendSettings
from signalbox.runtime import config
from tests.k8s.conftest import rendered, rendered_with
from tests.k8s.test_manifests import FACE
from tools.rehearsal.cluster import Cluster
from tools.rehearsal.environment import environment_of


@pytest.fixture
def cluster() -> Cluster:
    """The overlay cpu-demo with the component."""
    return rendered_with("files", "cpu-demo")


def test_frontends_keep_files_on_a_volume_that_they_may_write(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (claim,) = cluster.of_kind("PersistentVolumeClaim")
    frontends = [pod for pod in cluster.pods if pod.template["metadata"]["labels"].get(FACE) == "http"]
    assert frontends
    for pod in frontends:
        for name, value in environment_of(pod, cluster).items():
            monkeypatch.setenv(name, value)
        folder = config.load(FrontendSettings, []).files_dir
        mount = next(each for each in pod.container["volumeMounts"] if each["name"] == "files")
        assert folder is not None
        assert folder.parent == Path(mount["mountPath"])
        assert pod.spec["securityContext"]["fsGroup"] == pod.spec["securityContext"]["runAsGroup"]
        volume = next(each for each in pod.spec["volumes"] if each["name"] == "files")
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    size = int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi")) << 30
    assert size > FrontendSettings.model_fields["files_max_bytes"].default


def test_without_the_component_nobody_asks_for_a_volume() -> None:
    assert not list(rendered("cpu-demo").of_kind("PersistentVolumeClaim"))
