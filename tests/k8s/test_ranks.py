"""Workers whose model is divided among pods (RK10): a LeaderWorkerSet, whose pods find out which rank they are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.k8s.conftest import OVERLAYS, rendered, rendered_with
from tests.k8s.valid import LATEST, validate
from tools.rehearsal.cluster import Cluster
from worker_svc.config import WorkerSettings
from worker_svc.ranks.place import PORT, place_of


@pytest.fixture(params=sorted(set(OVERLAYS) - {"gpu"}))
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Overlays with it; several ranks run on CPUs alone, so far."""
    return rendered_with("ranks", str(request.param))


def spec_of(cluster: Cluster) -> dict[str, Any]:
    (document,) = (each for each in cluster.documents if each["kind"] == "LeaderWorkerSet")
    spec: dict[str, Any] = document["spec"]["leaderWorkerTemplate"]
    return spec


@pytest.mark.parametrize("version", ["1.30", LATEST])
def test_its_pods_are_valid(cluster: Cluster, version: str) -> None:
    """To the field, as a pod's template is anywhere."""
    template = spec_of(cluster)["workerTemplate"]
    validate(
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": template}, version
    )


def test_the_statefulset_has_no_pods(cluster: Cluster) -> None:
    (workers,) = (
        each for each in cluster.of_kind("StatefulSet") if each["metadata"]["name"] == "signalbox-worker"
    )
    assert workers["spec"]["replicas"] == 0


def test_each_pod_knows_its_rank(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(cluster)
    (container,) = spec["workerTemplate"]["spec"]["containers"]
    given = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
    assert int(given["SIGNALBOX_WORKER_TENSOR_PARALLEL"]) == spec["size"]
    assert {"containerPort": PORT, "name": "ranks"} in container["ports"]
    host = "signalbox-ranks-0.signalbox-ranks.default"
    for rank in range(spec["size"]):
        said = {
            "LWS_WORKER_INDEX": str(rank),
            "LWS_GROUP_SIZE": str(spec["size"]),
            "LWS_LEADER_ADDRESS": host,
        }
        place = place_of(said, spec["size"])
        assert place is not None and (place.rank, place.leader) == (rank, f"{host}:{PORT}")
    for name, value in (given | said).items():
        if "$(" not in value:
            monkeypatch.setenv(name, value)
    settings = WorkerSettings(model="/models/x")
    assert f"{host}:{PORT}" in settings.plaintext_addresses
    settings.take_effect()  # plaintext between nodes is allowed there


def test_pods_are_what_the_plain_worker_s_are() -> None:
    """But for what makes them ranks: whoever changes the one sees the other."""
    cluster = rendered_with("ranks", "cpu-demo")
    ours = spec_of(cluster)["workerTemplate"]["spec"]
    (worker,) = (pod for pod in rendered("cpu-demo").pods if pod.component == "worker")
    for name in (
        "serviceAccountName",
        "securityContext",
        "enableServiceLinks",
        "terminationGracePeriodSeconds",
    ):
        assert ours[name] == worker.template["spec"][name], name
    mine, theirs = ours["containers"][0], worker.container
    for name in ("command", "securityContext", "image", "envFrom"):
        assert mine[name] == theirs[name], name
