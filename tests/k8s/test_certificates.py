"""The component of certificates: what cert-manager is asked for is what the services understand."""

from __future__ import annotations

from typing import Any

import pytest

from signalbox.links.tls.roles import Role, instance_of, roles_of
from tests.k8s.conftest import rendered_with
from tools.rehearsal.cluster import Cluster

LINKED = {"certificates": ("scheduler", "worker", "frontend")}
BEHIND_RELAYS = "certificates+relay+relay-certificates"
LINKED[BEHIND_RELAYS] = (*LINKED["certificates"], "relay")
KINDS = {"worker": "StatefulSet", "relay": "DaemonSet"}


@pytest.fixture(params=LINKED)
def component(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cluster(component: str) -> Cluster:
    return rendered_with(component, "cpu-demo")


def documents(cluster: Cluster, kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in cluster.documents if each["kind"] == kind}


def test_each_role_gets_a_certificate_that_says_it(component: str, cluster: Cluster) -> None:
    """TL2, TL3."""
    certificates = documents(cluster, "Certificate")
    issuers = documents(cluster, "Issuer")
    for role in (*LINKED[component], "operator", "monitor"):
        spec = certificates[f"signalbox-{role}"]["spec"]
        assert roles_of([*spec["uris"], *spec["dnsNames"]]) == {Role(role)}
        assert instance_of(spec["uris"], Role(role)) is None
        assert Role(role).dns_name in spec["dnsNames"]
        assert {"server auth", "client auth"} <= set(spec["usages"])
        assert spec["issuerRef"]["name"] in issuers
    authority = certificates["signalbox-authority"]["spec"]
    assert authority["isCA"]
    assert issuers["signalbox-authority"]["spec"]["ca"]["secretName"] == authority["secretName"]


def test_services_find_theirs_and_listen_in_plaintext_for_probes_only(
    component: str, cluster: Cluster
) -> None:
    secrets = {each["spec"]["secretName"] for each in documents(cluster, "Certificate").values()}
    maps = {name.rpartition("-")[0]: each for name, each in documents(cluster, "ConfigMap").items()}
    for service in LINKED[component]:
        kind = KINDS.get(service, "Deployment")
        pod = documents(cluster, kind)[f"signalbox-{service}"]["spec"]["template"]["spec"]
        (volume,) = (each for each in pod["volumes"] if each["name"] == "certificates")
        assert volume["secret"]["secretName"] in secrets
        assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]
        (container,) = pod["containers"]
        mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        data = maps[f"signalbox-{service}"]["data"]
        prefix = f"SIGNALBOX_{service.upper()}_"
        for name, file in (("CERT", "tls.crt"), ("KEY", "tls.key"), ("CA", "ca.crt")):
            assert data[f"{prefix}TLS_{name}"] == f"{mounted['certificates']}/{file}"
        if service == "frontend":
            continue
        assert data[f"{prefix}INSECURE"] == "false"
        port = int(data[f"{prefix}HEALTH"].rpartition(":")[2])
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["grpc"]["port"] == port
            assert container[probe]["grpc"].get("service"), "which health is asked for stays as it was"


def test_workers_behind_relays_take_a_relay_for_what_it_says_it_is(cluster: Cluster, component: str) -> None:
    """TL4: with certificates, a worker that dials a relay expects the relay's."""
    maps = {name.rpartition("-")[0]: each for name, each in documents(cluster, "ConfigMap").items()}
    behind = maps["signalbox-worker"]["data"].get("SIGNALBOX_WORKER_BEHIND_RELAY", "false")
    assert behind == ("true" if component == BEHIND_RELAYS else "false")
