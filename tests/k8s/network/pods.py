"""The pods of rendered manifests as processes, each in its network namespace, with certificates for their roles."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scheduler_svc.lease.kubernetes_store import ACCOUNT
from signalbox.cli.identity import files_of
from signalbox.cli.ring.supervisor import Child, Service
from signalbox.links.tls.authority import make_leaf, read_authority
from signalbox.links.tls.roles import Role
from tests.k8s.network.api import PORT
from tests.k8s.network.namespaces import Dial, Network, inside, run
from tests.k8s.network.secret_mount import SecretMount
from tools.rehearsal.cluster import Cluster, Document, Pod
from tools.rehearsal.environment import IMAGE_PATHS, environment_of, relocate
from tools.rehearsal.policies import Peer, allows, peer_of

MODULES = {"scheduler-svc": "scheduler_svc", "worker-svc": "worker_svc", "frontend-svc": "frontend_svc"}
"""Entry point in an image: the module that it runs, for this interpreter has no entry points on its path."""
SIMULATED = {"SIGNALBOX_WORKER_RUNNER": "sim", "SIGNALBOX_WORKER_SIM_BASE_MS": "10"}
"""The one thing that differs from the manifests: workers load no model."""
SUBNET = "10.77.0"
SECRET_FILES = ("tls.crt", "tls.key", "ca.crt")
"""Of a Secret that cert-manager writes: certificate, key, authority."""
POLL_S = 0.05
PROGRAMS = Path(__file__).parent
API = "api"
"""The outsider that answers as the cluster's API server."""
IN_A_POD = 'mount -t tmpfs tmpfs /var/run && mkdir -p "$1" && mount --bind "$0" "$1" && shift && exec "$@"'
"""Puts the account's folder where pods have it, in a mount namespace that nobody else sees."""


def here(command: list[str]) -> tuple[str, ...]:
    """A container's command with this interpreter, its flags as the manifest has them."""
    program, *arguments = command
    if program == "python":
        return sys.executable, *arguments
    return sys.executable, "-P", "-m", MODULES[program], *arguments


class Pods:
    """The ring, and outsiders who only dial."""

    def __init__(self, cluster: Cluster, outsiders: dict[str, Peer], directory: Path) -> None:
        self.cluster = cluster
        self.network = Network()
        self.certificates = directory / "certificates"
        self._directory = directory
        self._account = directory / "account"
        self._secrets = {
            component: SecretMount(directory / "secrets" / component)
            for component in {pod.component for pod in cluster.pods}
        }
        self._children: dict[str, Child] = {}
        # Names of the cluster lead to these pods from now on.
        cluster.pods = [
            replace(pod, address=f"{SUBNET}.{number}") for number, pod in enumerate(cluster.pods, start=1)
        ]
        self.peers = {pod.name: peer_of(pod) for pod in cluster.pods}
        for number, (name, peer) in enumerate(outsiders.items(), start=len(self.peers) + 1):
            self.peers[name] = replace(peer, address=f"{SUBNET}.{number}")

    def __enter__(self) -> Pods:
        run(sys.executable, "-m", "signalbox", "certs", str(self.certificates))
        for component, mount in self._secrets.items():
            files = files_of(self.certificates, component)
            mount.write({name: path.read_bytes() for name, path in zip(SECRET_FILES, files, strict=True)})
        try:
            for name, peer in self.peers.items():
                self.network.attach(name, peer.address)
        except RuntimeError:
            self.network.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children.values():
            child.send(signal.SIGKILL)
            child.process.wait()
        self.network.close()

    def of(self, component: str) -> list[Pod]:
        return [pod for pod in self.cluster.pods if pod.component == component]

    def listening(self, pod: Pod) -> list[int]:
        """Its ports by its settings: also those that no policy names, such as those of health checks."""
        values = environment_of(pod, self.cluster).values()
        return sorted(int(value.rpartition(":")[2]) for value in values if value.startswith("0.0.0.0:"))

    def allowed(self) -> list[Dial]:
        """All dials that the manifests' NetworkPolicies let through, to ports where somebody listens."""
        return [
            Dial(source.address, self.peers[target].address, port)
            for name, source in self.peers.items()
            for target, port in self.ports()
            if target != name and allows(self.cluster, source, self.peers[target], port)
        ]

    def ports(self) -> list[tuple[str, int]]:
        """(name, port) of all that somebody listens on, in pods and outside."""
        inside_pods = [(pod.name, port) for pod in self.cluster.pods for port in self.listening(pod)]
        return [*inside_pods, (API, PORT)]

    def start_api(self, rules: list[Document]) -> None:
        """The API server, which knows one account and the rules of its Role."""
        self._account.mkdir()
        address = self.peers[API].address
        command = self.program("api", API, "serve", address, str(self._account), json.dumps(rules))
        self._children[API] = Child(Service(API, tuple(command)), self._directory / "api.log")
        while not (self._account / "token").exists():
            self.check()
            time.sleep(POLL_S)

    def lease(self) -> Document:
        """The spec of the schedulers' Lease, as one of their pods sees it."""
        source = self.of("scheduler")[0].name
        said = run(*self.program("api", source, "look", self.peers[API].address, str(self._account)))
        spec: Document = json.loads(said)
        return spec

    def start(self, pod: Pod) -> None:
        """The pod's process, with the manifest's variables and certificates in place of Secrets."""
        mount = self._secrets[pod.component].folder
        paths = IMAGE_PATHS | {f"/certificates/{name}": mount / name for name in SECRET_FILES}
        variables = {
            name: relocate(value, pod, self.cluster, paths)
            for name, value in environment_of(pod, self.cluster).items()
        }
        if pod.component == "worker":
            variables |= SIMULATED
        if pod.component in ("relay", "frontend"):
            # Who dials the Service reaches any pod behind it; here each is tried.
            both = ",".join(f"{each.address}:7300" for each in self.of("scheduler"))
            variables[f"SIGNALBOX_{pod.component.upper()}_SCHEDULER"] = both
        command = here(pod.container["command"])
        if pod.spec.get("automountServiceAccountToken"):
            variables |= {
                "KUBERNETES_SERVICE_HOST": self.peers[API].address,
                "KUBERNETES_SERVICE_PORT": str(PORT),
            }
            command = ("unshare", "--mount", "sh", "-c", IN_A_POD, str(self._account), str(ACCOUNT), *command)
        words = ("env", *(f"{name}={value}" for name, value in variables.items()), *command)
        service = Service(pod.name, inside(self.network.namespace(pod.name), *words))
        log = self._directory / f"{pod.name}.log"
        self._children[pod.name] = Child(service, log, is_new=not log.exists())

    def renew(self) -> None:
        """Each role gets a new certificate of the same authority, in the mounts of its pods, as cert-manager and the
        kubelet do it long before the old one ends."""
        authority = read_authority(self.certificates)
        for component, mount in self._secrets.items():
            leaf = make_leaf(authority, Role(component), datetime.now(UTC))
            mount.write(
                dict(zip(SECRET_FILES, (leaf.cert_pem, leaf.key_pem, authority.cert_pem), strict=True))
            )

    def stop(self, pod: Pod) -> None:
        """As the kubelet does, but for preStop's wait: SIGTERM, then the manifest's time."""
        child = self._children[pod.name]
        child.send(signal.SIGTERM)
        status = child.process.wait(pod.spec["terminationGracePeriodSeconds"])
        assert status == 0, child.exit_report()

    def check(self) -> None:
        """Everybody who was started runs."""
        for child in self._children.values():
            assert child.running, child.exit_report()

    def program(self, name: str, source: str, *arguments: str) -> list[str]:
        """The command of a program of this folder, in the namespace of whoever dials."""
        module = f"{__package__}.{name}"
        return [*inside(self.network.namespace(source), sys.executable, "-m", module, *arguments)]

    def dial(self, source: str, targets: list[tuple[str, int]], *options: str) -> list[str]:
        """What becomes of TCP connections, or handshakes: see dials.py."""
        script = str(PROGRAMS / "dials.py")
        command = inside(self.network.namespace(source), sys.executable, "-I", script, *options)
        answers: list[str] = json.loads(run(*command, said=json.dumps(targets)))
        return answers

    def run_client(self, source: str, *arguments: str) -> Any:
        """What clients.py prints."""
        done = subprocess.run(
            self.program("clients", source, *arguments),
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
