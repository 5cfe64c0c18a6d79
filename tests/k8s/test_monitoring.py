"""The component with PodMonitors, rules and boards: what it names of an overlay is there."""

from __future__ import annotations

import json

import pytest

from signalbox.links.tls.roles import Role
from tests.k8s.conftest import rendered_with
from tests.k8s.test_manifests import settings_of
from tools.rehearsal.cluster import Cluster, container_port


@pytest.fixture
def cluster() -> Cluster:
    """The overlay cpu-demo with the component."""
    return rendered_with("monitoring", "cpu-demo")


def test_each_service_is_scraped_at_the_port_that_its_annotation_names(cluster: Cluster) -> None:
    scraped = {}
    for monitor in cluster.of_kind("PodMonitor"):
        labels = monitor["spec"]["selector"]["matchLabels"]
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        job = monitor["metadata"]["name"].removesuffix("-grpc")
        assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": job}]
        for pod in cluster.pods:
            if labels.items() <= pod.template["metadata"]["labels"].items():
                port = container_port(pod, endpoint["port"])
                assert str(port) == pod.template["metadata"]["annotations"]["prometheus.io/port"]
                assert pod.name not in scraped
                scraped[pod.name] = job
    assert scraped == {pod.name: f"signalbox-{pod.component}" for pod in cluster.pods}


def test_rules_and_boards_come_with_it(cluster: Cluster) -> None:
    (rules,) = cluster.of_kind("PrometheusRule")
    assert [group["name"] for group in rules["spec"]["groups"]] == ["signalbox-records", "signalbox-alerts"]
    boards = cluster.find("ConfigMap", "signalbox-boards")
    assert boards["metadata"]["labels"]["grafana_dashboard"] == "1"
    uids = {json.loads(text)["uid"] for text in boards["data"].values()}
    assert uids == {f"signalbox-{name}" for name in ("overview", "scheduler", "workers", "frontends")}


@pytest.mark.parametrize("relays", ["", "+relay+relay-certificates"])
def test_where_metrics_are_over_tls_prometheus_checks_them_and_shows_a_certificate(
    relays: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TL3, TL8."""
    cluster = rendered_with(f"certificates{relays}+monitoring+monitoring-certificates", "cpu-demo")
    secrets = {each["spec"]["secretName"]: each["spec"] for each in cluster.of_kind("Certificate")}
    encrypted = set()
    for pod in cluster.pods:
        (endpoint,) = cluster.find("PodMonitor", f"signalbox-{pod.component}")["spec"]["podMetricsEndpoints"]
        with monkeypatch.context() as its_own:
            settings = settings_of(pod, cluster, its_own)
        if not settings.metrics or pod.component == "frontend":
            assert "tlsConfig" not in endpoint and "scheme" not in endpoint
            continue
        assert endpoint["scheme"] == "https" and not settings.plaintext_metrics
        tls = endpoint["tlsConfig"]
        assert tls["serverName"] == Role(pod.component).dns_name
        named = {tls["ca"]["secret"]["name"], tls["cert"]["secret"]["name"], tls["keySecret"]["name"]}
        (secret,) = named
        assert Role.MONITOR.dns_name in secrets[secret]["dnsNames"]
        keys = tls["ca"]["secret"]["key"], tls["cert"]["secret"]["key"], tls["keySecret"]["key"]
        assert keys == ("ca.crt", "tls.crt", "tls.key")
        encrypted.add(pod.component)
    assert encrypted == {"scheduler", "worker", *(["relay"] if relays else [])}
