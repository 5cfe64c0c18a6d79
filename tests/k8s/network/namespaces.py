"""A network of namespaces: each pod has its own, and all packets between pods pass the node's, where nftables has the
policies. That is how network plugins do it (Calico's routes, without its tunnels).

Needs root, iproute2 and nftables.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

GATEWAY = "169.254.1.1"
"""Every pod's next hop: the node's end of its link."""
TABLE = "inet policies"
_OURS = re.compile(r"^signalbox-(\d+)-\S+", re.MULTILINE)
"""A namespace, and the process that made it."""


@dataclass(frozen=True)
class Dial:
    """A connection that policies let through: addresses of both pods, port of the second."""

    source: str
    target: str
    port: int


def why_not() -> str:
    """What keeps this machine from having such a network; empty: nothing."""
    for tool in ("ip", "nft"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed; .ci/run installs it"
    name = f"signalbox-{os.getpid()}-try"
    try:
        run("ip", "netns", "add", name)
    except RuntimeError as error:
        return f"this machine lets nobody make network namespaces here: {error}"
    try:
        run(*inside(name, "nft", "add", "table", *TABLE.split()))
    except RuntimeError as error:
        return f"nftables do not work in a namespace here: {error}"
    finally:
        run("ip", "netns", "del", name)
    return ""


class Network:
    """The node, and the pods that were attached to it."""

    def __init__(self) -> None:
        sweep()
        self._prefix = f"signalbox-{os.getpid()}-"
        self._links: dict[str, str] = {}
        self._node = self.namespace("node")
        self._made: list[str] = []
        self._make(self._node)
        # Without a limit on how often a pod is told that a dial is refused: a test dials dozens of times at once.
        run(*inside(self._node, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.icmp_ratemask=0"))

    def namespace(self, pod: str) -> str:
        """The namespace of a pod, as `ip netns` calls it."""
        return self._prefix + pod

    def attach(self, pod: str, address: str) -> None:
        """A namespace with one address, which reaches all others by way of the node."""
        own, link = self.namespace(pod), f"pod{len(self._links)}"
        self._make(own)
        run(
            "ip",
            "link",
            "add",
            link,
            "netns",
            self._node,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            own,
        )
        self._links[address] = link
        for arguments in (
            ("address", "add", f"{GATEWAY}/32", "dev", link),
            ("link", "set", link, "up"),
            ("route", "add", address, "dev", link),
        ):
            run("ip", "-n", self._node, *arguments)
        for arguments in (
            ("address", "add", f"{address}/32", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("route", "add", GATEWAY, "dev", "eth0"),
            ("route", "add", "default", "via", GATEWAY),
        ):
            run("ip", "-n", own, *arguments)

    def enforce(self, dials: Iterable[Dial]) -> None:
        """Lets these dials through and their answers, and nothing else; connections that are there are judged, too."""
        run(*inside(self._node, "nft", "-f", "-"), said=self.rules(dials))

    def rules(self, dials: Iterable[Dial]) -> str:
        """The dials as nftables: by link, not only by the address that a packet claims. What is refused is told so, by
        a message that no closed port sends."""
        allowed = "\n".join(
            f'    iifname "{self._links[dial.source]}" ip saddr {dial.source}'
            f" ip daddr {dial.target} tcp dport {dial.port} accept"
            for dial in dials
        )
        return f"""\
table {TABLE}
delete table {TABLE}
table {TABLE} {{
  chain forward {{
    type filter hook forward priority 0; policy drop;
    ct state established,related accept
{allowed}
    reject with icmpx admin-prohibited
  }}
}}
"""

    def open(self) -> None:
        """Takes the policies away."""
        run(*inside(self._node, "nft", "delete", "table", *TABLE.split()))

    def close(self) -> None:
        """Takes away all namespaces, and the links with them."""
        while self._made:
            run("ip", "netns", "del", self._made.pop())

    def _make(self, name: str) -> None:
        run("ip", "netns", "add", name)
        self._made.append(name)
        run("ip", "-n", name, "link", "set", "lo", "up")


def sweep() -> None:
    """Takes away what processes have left behind that were killed."""
    for match in _OURS.finditer(run("ip", "netns", "list")):
        if not Path(f"/proc/{match[1]}").exists():
            run("ip", "netns", "del", match[0])


def inside(namespace: str, *command: str) -> tuple[str, ...]:
    """The command that runs another one in a namespace, as the same process."""
    return ("ip", "netns", "exec", namespace, *command)


def run(*command: str, said: str = "") -> str:
    """Its output. Raises RuntimeError with what it says when it fails."""
    done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
