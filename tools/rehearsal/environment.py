"""What a container finds when it starts: variables, volumes and addresses, moved to this machine."""

from __future__ import annotations

import math
import re
from pathlib import Path

from signalbox.cli.ring.ring import DEMO_MODEL
from tools.rehearsal.cluster import Cluster, Document, Pod, RehearsalError

IMAGE_PATHS = {"/models/demo": DEMO_MODEL}
"""Where the Dockerfile puts files of the checkout."""
NAMESPACE = "default"

_ADDRESS = r"[A-Za-z0-9.-]+:\d+"
_ADDRESSES = re.compile(rf"(?:^|(?<==)){_ADDRESS}(?:,{_ADDRESS})*$")
"""A value `host:port`, or several of them joined by commas, or a flag with one."""
_REFERENCE = re.compile(r"\$\((\w+)\)")
_QUANTITY = re.compile(r"(\d+)(m|Ki|Mi|Gi)?")
_SCALES = {None: 1.0, "m": 1e-3, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}


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


def make_leases(directory: Path) -> dict[str, Path]:
    """Leases of the namespace are locked files here."""
    folder = directory / "leases"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    return {f"kubernetes:{NAMESPACE}": Path(f"file:{folder}")}


def relocate(value: str, pod: Pod, cluster: Cluster, paths: dict[str, Path]) -> str:
    """The same value on this machine."""
    if match := _ADDRESSES.search(value):
        places = [_relocate_address(address, pod, cluster) for address in match[0].split(",")]
        return value[: match.start()] + ",".join(places)
    for path, here in paths.items():
        if value == path or value.startswith(path + "/"):
            return str(here) + value.removeprefix(path)
    return value


def _relocate_address(address: str, pod: Pod, cluster: Cluster) -> str:
    host, _, port = address.rpartition(":")
    if host in ("0.0.0.0", pod.address):
        return f"{pod.address}:{port}"
    return cluster.resolve(host, int(port))
