"""The rehearsal itself: it works, and says in one sentence what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.k8s.conftest import rendered
from tools import rehearse
from tools.rehearse import Cluster, RehearsalError, environment_of, expand, quantity, relocate

TIMEOUT_S = 110


def write_overlay(folder: Path, body: str) -> None:
    """An overlay over cpu-demo, `folder/broken`."""
    overlay = folder / "broken"
    overlay.mkdir()
    base = os.path.relpath(rehearse.OVERLAYS / "cpu-demo", overlay.resolve())
    (overlay / "kustomization.yaml").write_text(f"resources:\n  - {base}\n{body}")


def setting(service: str, literal: str) -> str:
    """A patch that sets one variable of a service."""
    name, _, value = literal.partition("=")
    patch = f'[{{"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": {{"name": "{name}", "value": "{value}"}}}}]'
    return f"patches:\n  - target:\n      name: signalbox-{service}\n      kind: Deployment|StatefulSet\n    patch: '{patch}'\n"


@pytest.mark.slow
def test_the_demo_overlay_serves_requests() -> None:
    rendered("cpu-demo")
    command = [sys.executable, str(Path(rehearse.__file__)), "--overlay", "cpu-demo"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("the overlay cpu-demo works\n")
    for pod in rendered("cpu-demo").pods:
        for said in (
            "startupProbe is SERVING",
            "readinessProbe is SERVING",
            "livenessProbe is SERVING",
            "stopped",
        ):
            assert f"\n{pod.name}: {said}" in done.stdout
    assert done.stdout.count("'def quicksort(' -> '") == 2


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        (
            setting("worker", "SIGNALBOX_WORKER_NUM_BLOKS=3"),
            "unknown environment variable SIGNALBOX_WORKER_NUM_BLOKS",
        ),
        (setting("worker", "SIGNALBOX_WORKER_SCHEDULER=nowhere:7300"), "there is no Service nowhere"),
        (
            setting("worker", "SIGNALBOX_WORKER_SCHEDULER=signalbox-scheduler:1"),
            "signalbox-scheduler has no port 1",
        ),
        (setting("frontend", "SIGNALBOX_FRONTEND_MODEL=/models/other"), "/models/other"),
    ],
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patch: str, words: str
) -> None:
    rendered("cpu-demo")
    write_overlay(tmp_path, patch)
    monkeypatch.setattr(rehearse, "OVERLAYS", tmp_path)
    (tmp_path / "run").mkdir()
    with pytest.raises(RehearsalError, match=words) as caught:
        rehearse.rehearse("broken", tmp_path / "run")
    assert "\n" not in str(caught.value).split("\n(log:")[0]
    assert [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE] == []


def test_a_claim_cannot_be_rehearsed(tmp_path: Path) -> None:
    rendered("gpu")
    with pytest.raises(RehearsalError, match="persistentVolumeClaim"):
        rehearse.rehearse("gpu", tmp_path)


def make_cluster() -> Cluster:
    """A small StatefulSet and its Service, without kubectl."""
    container = {
        "name": "thing",
        "ports": [{"name": "api", "containerPort": 5000}],
        "resources": {"limits": {"cpu": "1500m"}},
        "envFrom": [{"configMapRef": {"name": "settings"}}],
        "env": [
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "ADDRESS", "value": "$(NAME).things:$(PORT)"},
            {"name": "CORES", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        ],
    }
    labels = {"app": "thing"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return Cluster(
        [
            {"kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"PORT": "5000"}},
            {
                "kind": "Service",
                "metadata": {"name": "things"},
                "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": "api"}]},
            },
            {
                "kind": "StatefulSet",
                "metadata": {"name": "thing"},
                "spec": {"replicas": 2, "serviceName": "things", "template": template},
            },
        ]
    )


def test_variables_are_those_of_the_kubelet() -> None:
    cluster = make_cluster()
    assert environment_of(cluster.pods[1], cluster) == {
        "PORT": "5000",
        "NAME": "thing-1",
        "ADDRESS": "thing-1.things:5000",
        "CORES": "2",
    }


def test_names_lead_to_pods() -> None:
    cluster = make_cluster()
    first, second = cluster.pods
    assert cluster.resolve("things", 80) == f"{first.address}:5000"
    assert cluster.resolve("thing-1.things", 5000) == f"{second.address}:5000"
    for host in ("thing-2.things", "thing", "localhost"):
        with pytest.raises(RehearsalError, match="there is no Service"):
            cluster.resolve(host, 80)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0.0.0.0:9", "{address}:9"),
        ("--listen=0.0.0.0:9", "--listen={address}:9"),
        ("things:80", "{first}:5000"),
        ("/data", "/here"),
        ("/data/x", "/here/x"),
        ("/database", "/database"),
        ("http://elsewhere:4317", "http://elsewhere:4317"),
        ("0.5", "0.5"),
    ],
)
def test_only_hosts_and_paths_are_replaced(value: str, expected: str) -> None:
    cluster = make_cluster()
    first, pod = cluster.pods
    moved = relocate(value, pod, cluster, {"/data": Path("/here")})
    assert moved == expected.format(address=pod.address, first=first.address)


def test_quantities_and_references() -> None:
    assert (quantity("250m"), quantity("2"), quantity("3Ki")) == (0.25, 2, 3072)
    assert expand("$(A)-$(B)", {"A": "1"}) == "1-$(B)"
    with pytest.raises(RehearsalError, match="1e3"):
        quantity("1e3")
