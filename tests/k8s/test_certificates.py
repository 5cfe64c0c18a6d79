"""The component of certificates: what cert-manager is asked for is what the services understand."""

from __future__ import annotations

from typing import Any

import pytest

from signalbox.links.tls.roles import Role, instance_of, roles_of
from tests.k8s.conftest import rendered_with
from tools.rehearsal.cluster import Cluster

LINKED = ("scheduler", "worker", "frontend")


@pytest.fixture
def cluster() -> Cluster:
    return rendered_with("certificates", "cpu-demo")


def documents(cluster: Cluster, kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in cluster.documents if each["kind"] == kind}


def test_each_role_gets_a_certificate_that_says_it(cluster: Cluster) -> None:
    """TL2, TL3."""
    certificates = documents(cluster, "Certificate")
    issuers = documents(cluster, "Issuer")
    for role in ("scheduler", "worker", "frontend", "operator"):
        spec = certificates[f"signalbox-{role}"]["spec"]
        assert roles_of([*spec["uris"], *spec["dnsNames"]]) == {Role(role)}
        assert instance_of(spec["uris"], Role(role)) is None
        assert Role(role).dns_name in spec["dnsNames"]
        assert {"server auth", "client auth"} <= set(spec["usages"])
        assert spec["issuerRef"]["name"] in issuers
    authority = certificates["signalbox-authority"]["spec"]
    assert authority["isCA"]
    assert issuers["signalbox-authority"]["spec"]["ca"]["secretName"] == authority["secretName"]


def test_services_find_theirs_and_listen_in_plaintext_for_probes_only(cluster: Cluster) -> None:
    secrets = {each["spec"]["secretName"] for each in documents(cluster, "Certificate").values()}
    maps = {name.rpartition("-")[0]: each for name, each in documents(cluster, "ConfigMap").items()}
    for service in LINKED:
        kind = "StatefulSet" if service == "worker" else "Deployment"
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
