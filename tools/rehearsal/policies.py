"""Which dials the NetworkPolicies of rendered manifests let through, read as a network plugin reads them.

https://kubernetes.io/docs/concepts/services-networking/network-policies
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from tools.rehearsal.cluster import Cluster, Document, Pod, RehearsalError
from tools.rehearsal.environment import NAMESPACE

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""What Kubernetes puts on each namespace."""


@dataclass(frozen=True)
class Peer:
    """One end of a dial: a pod, or whatever else has an address."""

    labels: dict[str, str] = field(default_factory=dict)
    namespace: str = NAMESPACE
    """Empty: outside the cluster."""
    address: str = "203.0.113.1"
    ports: dict[str, int] = field(default_factory=dict)
    """Container ports by name."""


def peer_of(pod: Pod) -> Peer:
    """A pod as policies see it."""
    ports = {entry["name"]: entry["containerPort"] for entry in pod.container["ports"]}
    return Peer(pod.template["metadata"]["labels"], NAMESPACE, pod.address, ports)


def allows(cluster: Cluster, source: Peer, target: Peer, port: int, protocol: str = "TCP") -> bool:
    """A dial goes through when the policies of both ends let it."""
    leaves = _passes(cluster, "Egress", source, target, target, port, protocol)
    return leaves and _passes(cluster, "Ingress", target, source, target, port, protocol)


def allowed_dials(cluster: Cluster) -> Iterator[tuple[Pod, Pod, int]]:
    """(source, target, port) of all dials between different pods to a port that the target has."""
    peers = [(pod, peer_of(pod)) for pod in cluster.pods]
    for source, source_peer in peers:
        for target, target_peer in peers:
            if source is target:
                continue
            for port in target_peer.ports.values():
                if allows(cluster, source_peer, target_peer, port):
                    yield source, target, port


def _passes(
    cluster: Cluster, direction: str, own: Peer, other: Peer, target: Peer, port: int, protocol: str
) -> bool:
    """Who is selected by no policy of a direction is open in it; else one rule of one of them has to fit."""
    policies = [
        policy["spec"]
        for policy in cluster.of_kind("NetworkPolicy")
        if direction in policy["spec"]["policyTypes"]
        and own.namespace == NAMESPACE
        and _selects(policy["spec"]["podSelector"], own.labels)
    ]
    if not policies:
        return True
    side = "to" if direction == "Egress" else "from"
    rules = [rule for policy in policies for rule in policy.get(direction.lower(), [])]
    return any(
        _peer_fits(rule.get(side, []), other) and _port_fits(rule.get("ports", []), target, port, protocol)
        for rule in rules
    )


def _peer_fits(entries: list[Document], peer: Peer) -> bool:
    """No entry: everybody."""
    return not entries or any(_fits(entry, peer) for entry in entries)


def _fits(entry: Document, peer: Peer) -> bool:
    if "ipBlock" in entry:
        block = entry["ipBlock"]
        inside = ip_address(peer.address) in ip_network(block["cidr"])
        return inside and not any(
            ip_address(peer.address) in ip_network(net) for net in block.get("except", [])
        )
    if "namespaceSelector" in entry:
        if not peer.namespace or not _selects(entry["namespaceSelector"], {NAMESPACE_LABEL: peer.namespace}):
            return False
    elif peer.namespace != NAMESPACE:
        return False
    return _selects(entry.get("podSelector", {}), peer.labels)


def _port_fits(entries: list[Document], target: Peer, port: int, protocol: str) -> bool:
    """No entry: all ports. A name is that of a port of the pod that is dialled."""
    for entry in entries:
        if "endPort" in entry:
            raise RehearsalError("a range of ports in a NetworkPolicy cannot be rehearsed")
        number = target.ports.get(entry["port"]) if isinstance(entry["port"], str) else entry["port"]
        if number == port and entry.get("protocol", "TCP") == protocol:
            return True
    return not entries


def _selects(selector: Document, labels: dict[str, str]) -> bool:
    for expression in selector.get("matchExpressions", []):
        if expression["operator"] != "In":
            raise RehearsalError(f"{expression['operator']} in a NetworkPolicy cannot be rehearsed")
        if labels.get(expression["key"]) not in expression["values"]:
            return False
    wanted: dict[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()
