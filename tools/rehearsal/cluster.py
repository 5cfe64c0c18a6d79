"""Rendered manifests, and the pods that they ask for."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

OVERLAYS = Path(__file__).resolve().parents[2] / "k8s" / "overlays"
COMPONENT = "app.kubernetes.io/component"

Document = dict[str, Any]


class RehearsalError(Exception):
    """The deployment does not work as written; the message is a sentence."""


@dataclass(frozen=True)
class Pod:
    """One replica of a Deployment or StatefulSet, or the pod of a DaemonSet on the one node."""

    name: str
    address: str
    template: Document
    subdomain: str
    """The headless Service that gives the pod of a StatefulSet a name; empty for others."""

    @property
    def spec(self) -> Document:
        spec: Document = self.template["spec"]
        return spec

    @property
    def component(self) -> str:
        return str(self.template["metadata"]["labels"][COMPONENT])

    @property
    def container(self) -> Document:
        containers: list[Document] = self.spec["containers"]
        if len(containers) != 1:
            raise RehearsalError(f"{self.name} has {len(containers)} containers; only one can be rehearsed")
        return containers[0]

    @property
    def pre_stop_s(self) -> float:
        hook = self.container.get("lifecycle", {}).get("preStop", {})
        return float(hook.get("sleep", {}).get("seconds", 0))


class Cluster:
    """Rendered manifests, and the pods that they ask for."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents
        network = f"127.{random.randrange(1, 255)}.{random.randrange(1, 255)}"
        replicas = [
            (workload, index)
            for workload in self.of_kind("Deployment", "StatefulSet", "DaemonSet")
            for index in range(workload["spec"].get("replicas", 1))
        ]
        self.pods = [
            Pod(
                # A Deployment's pod would have a random suffix.
                name=f"{workload['metadata']['name']}-{index}",
                address=f"{network}.{number}",
                template=workload["spec"]["template"],
                subdomain=workload["spec"].get("serviceName", ""),
            )
            for number, (workload, index) in enumerate(replicas, start=1)
        ]

    def of_kind(self, *kinds: str) -> list[Document]:
        """All documents of these kinds."""
        return [document for document in self.documents if document["kind"] in kinds]

    def find(self, kind: str, name: str) -> Document:
        """The document of that name."""
        for document in self.of_kind(kind):
            if document["metadata"]["name"] == name:
                return document
        raise RehearsalError(f"there is no {kind} {name}")

    def behind(self, service: Document) -> list[Pod]:
        """The pods that a Service selects."""
        wanted = service["spec"]["selector"].items()
        return [pod for pod in self.pods if wanted <= pod.template["metadata"]["labels"].items()]

    def addresses(self, service: Document, port: int | str) -> list[str]:
        """host:port of each pod behind a port of a Service, which is given by number or name."""
        name = service["metadata"]["name"]
        for entry in service["spec"]["ports"]:
            if port in (entry["port"], entry.get("name")):
                target = entry.get("targetPort", entry["port"])
                return [f"{pod.address}:{container_port(pod, target)}" for pod in self.behind(service)]
        raise RehearsalError(f"the Service {name} has no port {port}")

    def resolve(self, host: str, port: int) -> str:
        """host:port that a name inside the cluster stands for: SERVICE, or POD.SERVICE of a StatefulSet."""
        for pod in self.pods:
            if pod.subdomain and host == f"{pod.name}.{pod.subdomain}":
                self.find("Service", pod.subdomain)
                return f"{pod.address}:{port}"
        found = self.addresses(self.find("Service", host), port)
        if not found:
            raise RehearsalError(f"no pod is behind the Service {host}")
        return found[0]


def render(overlay: Path) -> list[Document]:
    """What `kubectl apply -k` would send."""
    if not renderers():
        raise RehearsalError("neither kubectl nor kustomize is installed")
    command = [*renderers()[0], str(overlay)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RehearsalError(f"{' '.join(command)} fails: {done.stderr.strip()}")
    return list(yaml.safe_load_all(done.stdout))


def renderers() -> list[list[str]]:
    """Commands on this machine that print the manifests of a directory."""
    commands = [["kubectl", "kustomize"], ["kustomize", "build"]]
    return [command for command in commands if shutil.which(command[0])]


def container_port(pod: Pod, target: int | str) -> int:
    """The number of a target port, which may be a name."""
    for entry in pod.container["ports"]:
        if target in (entry["containerPort"], entry.get("name")):
            return int(entry["containerPort"])
    raise RehearsalError(f"{pod.name} has no port {target}")
