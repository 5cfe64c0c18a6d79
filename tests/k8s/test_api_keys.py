"""The component that has frontends ask for API keys, on top of an overlay."""

from __future__ import annotations

import json
import os
from pathlib import Path

import kubernetes_validate
import pytest

from frontend_svc.config import FrontendSettings
from signalbox import config
from tools.rehearsal import cluster as manifests
from tools.rehearsal.cluster import Cluster
from tools.rehearsal.environment import environment_of

COMPONENT = manifests.OVERLAYS.parent / "components" / "api-keys"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The overlay cpu-demo with the component."""
    if not manifests.renderers():
        pytest.skip("neither kubectl nor kustomize is installed; .ci/run installs one")
    overlay = tmp_path / "keys"
    overlay.mkdir()
    kustomization = {
        "resources": [os.path.relpath(manifests.OVERLAYS / "cpu-demo", overlay.resolve())],
        "components": [os.path.relpath(COMPONENT, overlay.resolve())],
    }
    (overlay / "kustomization.yaml").write_text(json.dumps(kustomization))
    monkeypatch.setattr(manifests, "OVERLAYS", tmp_path)
    return Cluster(manifests.render("keys"))


def test_every_document_is_valid(cluster: Cluster) -> None:
    for document in cluster.documents:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_frontends_read_their_keys_from_a_secret(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    frontends = [pod for pod in cluster.pods if pod.component == "frontend"]
    assert frontends
    for pod in frontends:
        for name, value in environment_of(pod, cluster).items():
            monkeypatch.setenv(name, value)
        key_file = config.load(FrontendSettings, []).key_file
        (mount,) = pod.container["volumeMounts"]
        assert key_file is not None
        assert key_file.parent == Path(mount["mountPath"])
        assert mount["readOnly"] is True
        assert "subPath" not in mount, "it would never see the Secret change"
        assert pod.spec["volumes"] == [
            {"name": mount["name"], "secret": {"secretName": "signalbox-api-keys"}}
        ]


def test_the_secret_itself_is_not_among_the_manifests(cluster: Cluster) -> None:
    assert not list(cluster.of_kind("Secret"))


def test_other_services_get_no_keys(cluster: Cluster) -> None:
    for pod in cluster.pods:
        if pod.component != "frontend":
            assert not any("secret" in volume for volume in pod.spec.get("volumes", []))
