"""Rehearses a deployment on this machine (Linux): runs what the rendered manifests of an overlay say.

    python tools/rehearse.py --overlay cpu-demo

Commands, environment, ports, user, probes, preStop and grace periods come from `kubectl kustomize`; none is written
again here. A pod is one process with a loopback address of its own, so ports stay as they are. Replaced are only hosts
(names of Services and pods, 0.0.0.0) and paths (of volumes, and of the model that the Dockerfile puts into images).
Images, limits on CPU, scheduling and DNS are not rehearsed.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from signalbox.cli import INTERRUPTED
from signalbox.client import Client
from signalbox.errors import SignalboxError
from signalbox.http_client import HttpClient
from signalbox.ring import DEMO_MODEL
from signalbox.supervisor import Child, Service

OVERLAYS = Path(__file__).resolve().parent.parent / "k8s" / "overlays"
IMAGE_PATHS = {"/models/demo": DEMO_MODEL}
"""Where the Dockerfile puts files of the checkout."""
NAMESPACE = "default"
COMPONENT = "app.kubernetes.io/component"
STOP_ORDER = ("frontend", "worker", "scheduler")
READY_S = 120.0
"""For readiness; Kubernetes would wait for ever."""
SCRAPE_TIMEOUT_S = 10.0
POLL_S = 0.05
PROMPT = "def quicksort("
MAX_TOKENS = 16

Document = dict[str, Any]

_ADDRESS = re.compile(r"(?:^|(?<==))([A-Za-z0-9.-]+):(\d+)$")
"""A value `host:port`, or a flag with one."""
_REFERENCE = re.compile(r"\$\((\w+)\)")
_QUANTITY = re.compile(r"(\d+)(m|Ki|Mi|Gi)?")
_SCALES = {None: 1.0, "m": 1e-3, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}


class RehearsalError(Exception):
    """The deployment does not work as written; the message is a sentence."""


@dataclass(frozen=True)
class Pod:
    """One replica of a Deployment or StatefulSet."""

    name: str
    address: str
    template: Document
    subdomain: str
    """The headless Service that gives the pod a name; empty for pods of a Deployment."""

    @property
    def spec(self) -> Document:
        spec: Document = self.template["spec"]
        return spec

    @property
    def component(self) -> str:
        return str(self.template["metadata"]["labels"][COMPONENT])

    @property
    def container(self) -> Document:
        containers: list[Document] = self.spec["containers"] + self.spec.get("initContainers", [])
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
            for workload in self.of_kind("Deployment", "StatefulSet")
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


def render(overlay: str) -> list[Document]:
    """What `kubectl apply -k` would send."""
    if not renderers():
        raise RehearsalError("neither kubectl nor kustomize is installed")
    command = [*renderers()[0], str(OVERLAYS / overlay)]
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


def quantity(text: str) -> float:
    """`500m` is 0.5, `1Ki` is 1024."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise RehearsalError(f"{text} is no quantity that can be rehearsed")
    return int(match[1]) * _SCALES[match[2]]


def environment_of(pod: Pod, cluster: Cluster) -> dict[str, str]:
    """Variables of the container as the kubelet makes them: ConfigMaps, then `env`, which may refer to those before."""
    values: dict[str, str] = {}
    for source in pod.container.get("envFrom", []):
        values |= cluster.find("ConfigMap", source["configMapRef"]["name"])["data"]
    for entry in pod.container.get("env", []):
        literal = expand(entry["value"], values) if "value" in entry else None
        values[entry["name"]] = literal if literal is not None else _looked_up(entry["valueFrom"], pod)
    return values


def expand(text: str, values: dict[str, str]) -> str:
    """Replaces `$(NAME)`; what is not known stays as it is."""
    return _REFERENCE.sub(lambda match: values.get(match[1], match[0]), text)


def _looked_up(source: Document, pod: Pod) -> str:
    fields = {"metadata.name": pod.name, "metadata.namespace": NAMESPACE, "status.podIP": pod.address}
    if path := source.get("fieldRef", {}).get("fieldPath"):
        if path in fields:
            return fields[path]
    elif (path := source.get("resourceFieldRef", {}).get("resource", "")).startswith(
        ("limits.", "requests.")
    ):
        group, _, resource = path.partition(".")
        return str(math.ceil(quantity(pod.container["resources"][group][resource])))
    raise RehearsalError(f"{pod.name} takes a variable from {source}, which cannot be rehearsed")


def make_volumes(pod: Pod, directory: Path) -> dict[str, Path]:
    """An empty directory for each mount, by its path in the container."""
    volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", [])}
    made: dict[str, Path] = {}
    for mount in pod.container.get("volumeMounts", []):
        kind = next(kind for kind in volumes[mount["name"]] if kind != "name")
        if kind != "emptyDir":
            raise RehearsalError(
                f"{mount['mountPath']} of {pod.name} is a {kind}, which is not there on this machine"
            )
        made[mount["mountPath"]] = path = directory / f"{pod.name}-{mount['name']}"
        path.mkdir()
        # An emptyDir is for everybody.
        path.chmod(0o777)
    return made


def relocate(value: str, pod: Pod, cluster: Cluster, paths: dict[str, Path]) -> str:
    """The same value on this machine."""
    if match := _ADDRESS.search(value):
        port = int(match[2])
        place = f"{pod.address}:{port}" if match[1] == "0.0.0.0" else cluster.resolve(match[1], port)
        return value[: match.start()] + place
    for path, here in paths.items():
        if value == path or value.startswith(path + "/"):
            return str(here) + value.removeprefix(path)
    return value


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
        self.pod = pod
        paths = make_volumes(pod, directory) | IMAGE_PATHS
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
        """What a probe of the manifest answers: SERVING is good; other states and gRPC status codes are not."""
        probe = self.pod.container[kind]
        if "grpc" not in probe:
            raise RehearsalError(f"the {kind} of {self.pod.name} is not a gRPC probe")
        request = health_pb2.HealthCheckRequest(service=probe["grpc"].get("service", ""))
        with grpc.insecure_channel(f"{self.pod.address}:{probe['grpc']['port']}") as channel:
            try:
                answer = health_pb2_grpc.HealthStub(channel).Check(
                    request, timeout=probe.get("timeoutSeconds", 1)
                )
            except grpc.RpcError as error:
                return str(error.code().name)
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))

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


def wait_for(probe: str, pods: Sequence[Running], limit_s: Callable[[Document], float]) -> None:
    """Returns when a probe has been good once on each pod, run as often as the manifest says."""
    for running in pods:
        entry = running.pod.container[probe]
        give_up = time.monotonic() + limit_s(entry)
        while (answer := running.check(probe)) != "SERVING":
            for other in pods:
                if not other.child.running:
                    raise RehearsalError(other.child.obituary())
            if time.monotonic() > give_up:
                raise RehearsalError(
                    f"the {probe} of {running.pod.name} still answers {answer}; its log is {running.child.log}"
                )
            time.sleep(entry.get("periodSeconds", 10))
        say(f"{running.pod.name}: {probe} is SERVING")


def startup_limit_s(probe: Document) -> float:
    """How long Kubernetes lets a container start."""
    return float(
        probe.get("initialDelaySeconds", 0) + probe.get("periodSeconds", 10) * probe["failureThreshold"]
    )


def scrape(pods: Sequence[Running]) -> None:
    """Asks each pod that says so for its metrics."""
    for running in pods:
        notes = running.pod.template["metadata"].get("annotations", {})
        if notes.get("prometheus.io/scrape") != "true":
            continue
        path, port = notes.get("prometheus.io/path", "/metrics"), notes["prometheus.io/port"]
        url = f"http://{running.pod.address}:{port}{path}"
        try:
            with urlopen(url, timeout=SCRAPE_TIMEOUT_S) as answer:
                lines = answer.read().decode().splitlines()
        except OSError as error:
            raise RehearsalError(f"no metrics from {running.pod.name} at {url}: {error}") from None
        say(f"{url}: {sum(not line.startswith('#') for line in lines)} samples")


def ask(cluster: Cluster) -> None:
    """One request through each public face: HTTP to the first frontend, gRPC to the last."""
    url = f"http://{_public(cluster, 'http')[0]}"
    client = HttpClient(url)
    model = client.get("/v1/models")["data"][0]["id"]
    body = {"model": model, "prompt": PROMPT, "max_tokens": MAX_TOKENS, "temperature": 0, "stream": True}
    events = client.post_stream("/v1/completions", body)
    _say_answer(url, "".join(choice["text"] for event in events for choice in event["choices"]))
    address = _public(cluster, "grpc")[-1]
    _say_answer(address, asyncio.run(_generate(address)))


async def _generate(address: str) -> str:
    async with Client(address) as client:
        result = await client.generate(PROMPT, max_tokens=MAX_TOKENS, temperature=0, timeout_s=60).result()
    return result.text


def _public(cluster: Cluster, port: str) -> list[str]:
    for service in cluster.of_kind("Service"):
        names = {entry.get("name") for entry in service["spec"]["ports"]}
        if port in names and {pod.component for pod in cluster.behind(service)} == {"frontend"}:
            return cluster.addresses(service, port)
    raise RehearsalError(f"no Service offers the frontends' port {port}")


def _say_answer(address: str, text: str) -> None:
    if not text:
        raise RehearsalError(f"{address} answered a request without any text")
    say(f"{address}: {PROMPT!r} -> {text!r}")


def stop(pods: Sequence[Running]) -> None:
    """Ends pods of one workload as the kubelet would: preStop, SIGTERM, and no more than the grace period."""
    spec, pre_stop_s = pods[0].pod.spec, pods[0].pod.pre_stop_s
    grace_s = spec["terminationGracePeriodSeconds"]
    give_up = time.monotonic() + grace_s
    time.sleep(pre_stop_s)
    for running in pods:
        running.child.send(signal.SIGTERM)
    for running in pods:
        while running.child.running:
            if time.monotonic() > give_up:
                raise RehearsalError(
                    f"{running.pod.name} did not stop within its grace period of {grace_s} s"
                )
            time.sleep(POLL_S)
        if running.child.process.returncode:
            raise RehearsalError(running.child.obituary())
        say(f"{running.pod.name}: stopped, preStop {pre_stop_s:.0f} s, within {grace_s} s")


def rehearse(overlay: str, directory: Path) -> None:
    """Starts everything at once, as Kubernetes does; waits by the manifest's probes; asks; stops in order.

    Raises RehearsalError or SignalboxError; nothing is left running, however it ends.
    """
    cluster = Cluster(render(overlay))
    pods: list[Running] = []
    try:
        for pod in cluster.pods:
            pods.append(Running(pod, cluster, directory))
        wait_for("startupProbe", pods, startup_limit_s)
        wait_for("readinessProbe", pods, lambda _: READY_S)
        ask(cluster)
        scrape(pods)
        wait_for("livenessProbe", pods, lambda _: 0.0)
        for running in pods:
            say(f"{running.pod.name}: {running.memory() >> 20} MiB of memory at most")
        for component in STOP_ORDER:
            stop([running for running in pods if running.pod.component == component])
    finally:
        for running in pods:
            running.child.send(signal.SIGKILL)
            running.child.process.wait()


def say(text: str) -> None:
    """To stdout, at once."""
    print(text, flush=True)


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description="Start the services as the rendered manifests say, and send requests."
    )
    overlays = sorted(path.name for path in OVERLAYS.iterdir())
    parser.add_argument("--overlay", choices=overlays, default="cpu-demo", help="(%(default)s)")
    overlay = parser.parse_args().overlay
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="rehearse-"))
    # Other users have volumes in it.
    directory.chmod(0o755)
    status = _run(overlay, directory)
    if status != 1 or not any(directory.glob("*.log")):
        shutil.rmtree(directory)
    return status


def _run(overlay: str, directory: Path) -> int:
    """What goes wrong becomes one sentence on stderr; the logs stay then."""
    try:
        rehearse(overlay, directory)
    except (RehearsalError, SignalboxError) as error:
        print(f"rehearse: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    say(f"the overlay {overlay} works")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
