"""The rehearsal itself: it works, and says in one sentence what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.k8s.conftest import rendered
from tools.rehearsal.cluster import OVERLAYS, Cluster, RehearsalError
from tools.rehearsal.environment import environment_of, expand, quantity, relocate
from tools.rehearsal.rehearse import rehearse

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 280


def write_overlay(folder: Path, service: str, name: str, value: str) -> None:
    """`folder/broken`: the overlay cpu-demo with one more variable for a service."""
    overlay = folder / "broken"
    overlay.mkdir()
    variable = {"name": name, "value": value}
    patch = [{"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": variable}]
    target = {"kind": "Deployment|StatefulSet", "name": f"signalbox-{service}"}
    kustomization = {
        "resources": [os.path.relpath(OVERLAYS / "cpu-demo", overlay.resolve())],
        "patches": [{"target": target, "patch": json.dumps(patch)}],
    }
    (overlay / "kustomization.yaml").write_text(json.dumps(kustomization))


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 10)
def test_the_demo_overlay_serves_requests() -> None:
    rendered("cpu-demo")
    command = [sys.executable, "-m", "tools.rehearsal", "--overlay", "cpu-demo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
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
    assert done.stdout.count(" samples\n") == len(rendered("cpu-demo").pods)


@pytest.mark.parametrize(
    ("service", "name", "value", "words"),
    [
        (
            "worker",
            "SIGNALBOX_WORKER_NUM_BLOKS",
            "3",
            "unknown environment variable SIGNALBOX_WORKER_NUM_BLOKS",
        ),
        ("worker", "SIGNALBOX_WORKER_SCHEDULER", "nowhere:7300", "there is no Service nowhere"),
        (
            "worker",
            "SIGNALBOX_WORKER_SCHEDULER",
            "signalbox-scheduler:1",
            "signalbox-scheduler has no port 1",
        ),
        ("frontend", "SIGNALBOX_FRONTEND_MODEL", "/models/other", "/models/other"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, service: str, name: str, value: str, words: str) -> None:
    rendered("cpu-demo")
    write_overlay(tmp_path, service, name, value)
    (tmp_path / "run").mkdir()
    before = psutil.Process().children()
    with pytest.raises(RehearsalError) as caught:
        rehearse(tmp_path / "broken", tmp_path / "run")
    sentence, *rest = str(caught.value).splitlines()
    assert words in sentence
    assert not rest or rest[0].startswith("(log: ")
    assert psutil.Process().children() == before


def test_a_claim_cannot_be_rehearsed(tmp_path: Path) -> None:
    rendered("gpu")
    with pytest.raises(RehearsalError, match="persistentVolumeClaim"):
        rehearse(OVERLAYS / "gpu", tmp_path)


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
        ("things:80,thing-1.things:9", "{first}:5000,{address}:9"),
        ("--scheduler=thing-1.things:9,0.0.0.0:8", "--scheduler={address}:9,{address}:8"),
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
