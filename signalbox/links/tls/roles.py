"""What the services of a ring are to each other, and who may call what (docs/design.md, "Roles").

A certificate names a role by a URI (`spiffe://TRUST-DOMAIN/ROLE`, further parts of the path are an instance's own) or,
where it has no such URI at all, by a DNS name (`ROLE.signalbox`). Clients check servers by DNS name only, so every leaf
carries both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final
from urllib.parse import urlsplit


class Role(Enum):
    """What the holder of a certificate is."""

    FRONTEND = "frontend"
    SCHEDULER = "scheduler"
    WORKER = "worker"
    RELAY = "relay"
    OPERATOR = "operator"
    MONITOR = "monitor"
    """Reads metrics, and calls nothing."""

    @property
    def dns_name(self) -> str:
        """The name by which its server is checked, wherever it runs."""
        return f"{self.value}.{DOMAIN}"


DOMAIN: Final = "signalbox"
_URI: Final = "spiffe://"
_BY_NAME: Final = {role.value: role for role in Role}
_SCHEDULER, _ADMIN = "/signalbox.v1.SchedulerService/", "/signalbox.v1.AdminService/"
_RING = frozenset(Role) - {Role.MONITOR}
_OPERATORS = frozenset({Role.OPERATOR})

CALLERS: Final[Mapping[str, frozenset[Role]]] = {
    f"{_SCHEDULER}AttachFrontend": frozenset({Role.FRONTEND}),
    f"{_SCHEDULER}AttachWorker": frozenset({Role.WORKER}),
    f"{_SCHEDULER}AttachWorkers": frozenset({Role.RELAY}),
    f"{_SCHEDULER}FindLeader": _RING,
    f"{_SCHEDULER}ReportWorkerExit": frozenset({Role.WORKER, Role.RELAY}),
    f"{_ADMIN}GetStatus": _OPERATORS,
    f"{_ADMIN}ExplainRequest": _OPERATORS,
    f"{_ADMIN}ResetPrefixCache": _OPERATORS,
    f"{_ADMIN}DrainWorker": _OPERATORS,
    f"{_ADMIN}SetWorkerRole": _OPERATORS,
    f"{_ADMIN}MoveRequest": _OPERATORS,
    f"{_ADMIN}SetSafeMode": _OPERATORS,
    f"{_ADMIN}LiftSafeMode": _OPERATORS,
    f"{_ADMIN}ReloadTenants": _OPERATORS,
    f"{_ADMIN}WatchBoard": frozenset({Role.OPERATOR, Role.FRONTEND}),
    "/signalbox.v1.WorkerService/StreamOutputs": frozenset({Role.FRONTEND}),
    "/signalbox.v1.TransferService/Pull": frozenset({Role.WORKER}),
    "/grpc.health.v1.Health/Check": _RING,
    "/grpc.health.v1.Health/Watch": _RING,
    "/grpc.health.v1.Health/List": _RING,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _OPERATORS,
}
"""Methods of the links within a ring, and who may call them. What is not here nobody may."""


def roles_of(names: Iterable[str], domain: str = DOMAIN) -> frozenset[Role]:
    """The roles that the subject alternative names of a certificate say; none: it is nobody's of this ring. domain:
    whose URIs count; names of DNS count only beside no URI, whosever."""
    names = list(names)
    paths = [_path_of(name, domain) for name in names if name.startswith(_URI)]
    if paths:
        said = [path.partition("/")[0] for path in paths]
    else:
        said = [host for host, _, rest in (name.partition(".") for name in names) if rest == DOMAIN]
    return frozenset(_BY_NAME[name] for name in said if name in _BY_NAME)


def instance_of(names: Iterable[str], role: Role, domain: str = DOMAIN) -> str | None:
    """The one process of a `role` that a certificate is for, by the rest of its URI's path; None: for any. domain:
    whose URIs count."""
    for name in names:
        if name.startswith(_URI):
            said, _, instance = _path_of(name, domain).partition("/")
            if said == role.value and instance:
                return instance
    return None


def _path_of(uri: str, domain: str) -> str:
    """Without the first slash; empty: it is of another trust domain."""
    parts = urlsplit(uri)
    return parts.path.removeprefix("/") if parts.netloc == domain else ""
