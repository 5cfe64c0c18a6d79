"""Leases by name: `file:PATH`, `kubernetes:NAMESPACE/NAME`."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from scheduler_svc.lease.alone import NoLease
from scheduler_svc.lease.file_lease import FileLease
from scheduler_svc.lease.kubernetes_store import ACCOUNT, KubernetesStore
from scheduler_svc.lease.lease import Holder, Lease
from scheduler_svc.lease.polled_lease import RENEWALS, PolledLease
from scheduler_svc.lease.rest import Rest
from signalbox.errors import StartupError
from signalbox.runtime.removed import refusal

_NAME = "[a-z0-9]([-a-z0-9.]*[a-z0-9])?"


@dataclass(frozen=True)
class LeaseSpec:
    """The lease that a setting names."""

    kind: str
    """file, kubernetes; empty: none."""
    where: str
    """A path, or a namespace."""
    name: str = ""
    """Name of the Lease object."""


def parse_lease(text: str) -> LeaseSpec:
    """Raises ValueError with a sentence."""
    kind, _, rest = text.partition(":")
    if not text:
        return LeaseSpec("", "")
    if kind == "file" and rest:
        return LeaseSpec(kind, rest)
    if kind == "kubernetes" and re.fullmatch(f"{_NAME}/{_NAME}", rest):
        namespace, _, name = rest.partition("/")
        return LeaseSpec(kind, namespace, name)
    removed = refusal(f"SIGNALBOX_SCHEDULER_LEASE={kind}", f"the lease {kind}:")
    raise ValueError(removed or "a lease is file:PATH or kubernetes:NAMESPACE/NAME")


def user_lease() -> Path:
    """The file that is locked when nobody names one: the same for all schedulers of a user on a host. Its directory is
    made for the user alone: in a common one anybody could lock the file, and nobody would lead."""
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/signalbox-{os.getuid()}"
    return Path(runtime) / "signalbox-scheduler.lease"


def _make_private(folder: Path) -> None:
    """Raises ValueError when `folder` is somebody else's."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        raise ValueError(f"{folder} is not ours; name a file with --lease file:PATH")


def open_lease(spec: LeaseSpec, us: Holder, duration_s: float) -> Lease:
    """The lease that `spec` names. Raises StartupError."""
    timeout_s = duration_s / RENEWALS
    try:
        if spec.kind == "file":
            if Path(spec.where) == user_lease():
                _make_private(user_lease().parent)
            lease = FileLease(Path(spec.where), us)
            lease.check()
            return lease
        if spec.kind == "kubernetes":
            api = Rest(_kubernetes_url(), timeout_s, ACCOUNT / "ca.crt")
            return PolledLease(KubernetesStore(api, spec.where, spec.name, us, duration_s), duration_s)
    except (OSError, ValueError) as error:
        raise StartupError(f"--lease: {error}") from None
    return NoLease()


def _kubernetes_url() -> str:
    """Every pod is told where the API server is."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ValueError("a Lease of Kubernetes is for pods, and KUBERNETES_SERVICE_HOST is not set")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
