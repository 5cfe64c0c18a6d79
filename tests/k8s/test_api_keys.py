"""The component that has frontends ask for API keys, on top of an overlay."""

from __future__ import annotations

from pathlib import Path

import pytest

from frontend_svc.config import FrontendSettings
from signalbox.runtime import config
from tests.k8s.conftest import rendered_with
from tools.rehearsal.cluster import Cluster
from tools.rehearsal.environment import environment_of


@pytest.fixture
def cluster() -> Cluster:
    """The overlay cpu-demo with the component."""
    return rendered_with("api-keys", "cpu-demo")


def test_frontends_read_their_keys_from_a_secret(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    frontends = [pod for pod in cluster.pods if pod.component == "frontend"]
    assert frontends
    for pod in frontends:
        for name, value in environment_of(pod, cluster).items():
            monkeypatch.setenv(name, value)
        key_file = config.load(FrontendSettings, []).key_file
        assert key_file is not None
        mounts = pod.container["volumeMounts"]
        (mount,) = [mount for mount in mounts if key_file.parent == Path(mount["mountPath"])]
        assert mount["readOnly"] is True
        assert "subPath" not in mount, "it would never see the Secret change"
        secret = {"name": mount["name"], "secret": {"secretName": "signalbox-api-keys"}}
        assert [volume for volume in pod.spec["volumes"] if "secret" in volume] == [secret]


def test_the_secret_itself_is_not_among_the_manifests(cluster: Cluster) -> None:
    assert not list(cluster.of_kind("Secret"))


def test_other_services_get_no_keys(cluster: Cluster) -> None:
    for pod in cluster.pods:
        if pod.component != "frontend":
            assert not any("secret" in volume for volume in pod.spec.get("volumes", []))
