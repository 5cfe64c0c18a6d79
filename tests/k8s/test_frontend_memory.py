"""The limits that ship leave room: what accepted requests may hold keeps a frontend below the guard's first level."""

from __future__ import annotations

import pytest

from frontend_svc.config import FrontendSettings
from frontend_svc.guard.levels import TIGHT_SHARE
from signalbox.cli.ring.ring import GRPC_MEMORY_BYTES
from tests.k8s.test_manifests import settings_of
from tools.rehearsal.cluster import Cluster

START_BYTES = 200 << 20
"""Of a process without requests: 82 MiB with the demo model, more with a vocabulary of 150,000 tokens."""
UNITS = {"Mi": 20, "Gi": 30}


def held_bytes(settings: FrontendSettings) -> int:
    return START_BYTES + settings.max_open_bytes + settings.max_body_bytes_at_once


def test_pods_of_frontends_have_room_for_what_they_may_accept(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontends = [pod for pod in cluster.pods if pod.component == "frontend"]
    assert {pod.template["metadata"]["labels"]["signalbox.io/face"] for pod in frontends} == {"http", "grpc"}
    for pod in frontends:
        with monkeypatch.context() as its_own:
            settings = settings_of(pod, cluster, its_own)
        limit = pod.container["resources"]["limits"]["memory"]
        assert held_bytes(settings) < TIGHT_SHARE * (int(limit[:-2]) << UNITS[limit[-2:]])


def test_frontends_of_a_ring_on_one_machine_have_it_too() -> None:
    assert held_bytes(FrontendSettings()) < TIGHT_SHARE * GRPC_MEMORY_BYTES
