"""A pod as a process."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from signalbox.cli.ring.supervisor import Child, Service
from tools.rehearsal.cluster import Cluster, Document, Pod, RehearsalError, container_port
from tools.rehearsal.environment import (
    IMAGE_PATHS,
    environment_of,
    expand,
    make_leases,
    make_volumes,
    quantity,
    relocate,
)


def as_user(pod: Pod) -> list[str]:
    """A command that runs another with the uid and the few rights of the container, for root only.

    It may read what root may, for a checkout can lie where nobody else can read. It can write only what belongs to it,
    which is how a root file system that is read-only is rehearsed.
    """
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return []
    context = pod.spec["securityContext"]
    reading = "-all,+dac_read_search"
    return [
        "setpriv",
        f"--reuid={context['runAsUser']}",
        f"--regid={context['runAsGroup']}",
        "--clear-groups",
        "--no-new-privs",
        f"--inh-caps={reading}",
        f"--ambient-caps={reading}",
        f"--bounding-set={reading}",
        # A change of uid forgets the one that Child asks for.
        "--pdeathsig=TERM",
    ]


class Running:
    """A pod and its process."""

    def __init__(self, pod: Pod, cluster: Cluster, directory: Path) -> None:
        if pod.spec.get("initContainers"):
            raise RehearsalError(f"{pod.name} has init containers, which cannot be rehearsed")
        self.pod = pod
        paths = make_volumes(pod, directory) | make_leases(directory) | IMAGE_PATHS
        environment = environment_of(pod, cluster)
        here = {name: relocate(value, pod, cluster, paths) for name, value in environment.items()}
        parts = [*pod.container["command"], *pod.container.get("args", [])]
        command = [relocate(expand(part, environment), pod, cluster, paths) for part in parts]
        user = as_user(pod)
        _say_start(pod, command, user, environment, here)
        # Beside the manifest's variables a container has only the PATH of its image.
        variables = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"} | here
        assignments = [f"{name}={value}" for name, value in variables.items()]
        self.child = Child(
            Service(pod.name, ("env", "-i", *assignments, *user, *command)), directory / f"{pod.name}.log"
        )

    def check(self, kind: str) -> str:
        """What a probe of the manifest answers: SERVING is good; other states, gRPC and HTTP status codes are not."""
        probe = self.pod.container[kind]
        if "httpGet" in probe:
            return self._get(probe["httpGet"], probe.get("timeoutSeconds", 1))
        if "grpc" not in probe:
            raise RehearsalError(f"the {kind} of {self.pod.name} is neither a gRPC probe nor one over HTTP")
        request = health_pb2.HealthCheckRequest(service=probe["grpc"].get("service", ""))
        with grpc.insecure_channel(
            f"{self.pod.address}:{probe['grpc']['port']}", options=[("grpc.enable_http_proxy", 0)]
        ) as channel:
            try:
                answer = health_pb2_grpc.HealthStub(channel).Check(
                    request, timeout=probe.get("timeoutSeconds", 1)
                )
            except grpc.RpcError as error:
                return str(error.code().name)
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))

    def _get(self, probe: Document, timeout_s: float) -> str:
        """SERVING for what a kubelet takes for good."""
        url = f"http://{self.pod.address}:{container_port(self.pod, probe['port'])}{probe['path']}"
        try:
            with urlopen(url, timeout=timeout_s):
                return "SERVING"
        except HTTPError as error:
            return str(error.code)
        except OSError:
            return "UNAVAILABLE"

    def memory(self) -> int:
        """The most memory that it has held, in bytes. Raises RehearsalError when that is above its limit."""
        status = Path(f"/proc/{self.child.process.pid}/status").read_text()
        peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * 1024
        limit = self.pod.container["resources"]["limits"]["memory"]
        if peak > quantity(limit):
            raise RehearsalError(f"{self.pod.name} took {peak >> 20} MiB of memory; its limit is {limit}")
        return peak


def _say_start(
    pod: Pod, command: list[str], user: list[str], environment: dict[str, str], here: dict[str, str]
) -> None:
    uid = (
        pod.spec["securityContext"]["runAsUser"]
        if user
        else f"{os.geteuid()} (another needs root and setpriv)"
    )
    say(f"{pod.name} at {pod.address}, uid {uid}: {' '.join(command)}")
    for name, value in environment.items():
        moved = f" -> {here[name]}" if here[name] != value else ""
        say(f"    {name}={value}{moved}")


def say(text: str) -> None:
    """To stdout, at once."""
    print(text, flush=True)
