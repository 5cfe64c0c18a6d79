"""A lease as an object of coordination.k8s.io/v1, written by compare-and-swap of its resourceVersion.

Nobody compares clocks: who waits watches, by its own clock, how long the object stays as it is, as client-go does.
"""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from scheduler_svc.lease.lease import Holder
from scheduler_svc.lease.rest import Json, Rest, RestError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds token and certificates of its account."""


class KubernetesStore:
    """The Lease `name` in `namespace`. Its leaseTransitions is the counter; its holder is written ADDRESS_INSTANCE."""

    def __init__(
        self,
        api: Rest,
        namespace: str,
        name: str,
        us: Holder,
        duration_s: float,
        token: Path = ACCOUNT / "token",
    ) -> None:
        """`duration_s`: whole seconds, at least 1. `token`: read with each call, as it is replaced within the hour."""
        self._api, self._name, self._token = api, name, token
        self._namespace = namespace
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._us, self._duration_s = f"{us.address}_{us.instance}", math.ceil(duration_s)
        self._object: Json = {}
        """The Lease object as it was last seen; empty: there was none."""
        self._seen = ("", 0.0)
        """Its resourceVersion, and since when it is this one by our clock."""

    @property
    def holder_address(self) -> str:
        """host:port of the scheduler that has the lease; empty: nobody has it."""
        return self._holder.rpartition("_")[0]

    async def take(self, *, is_holder_gone: bool = False) -> int | None:
        """Takes the lease if nobody has it, or if its holder is gone; returns the counter. None: another holds it."""
        await self._look()
        if not self._object:
            return 1 if await self._write("POST", self._path, self._taken(1)) else None
        if self._holder == self._us:  # a write of ours whose answer was lost
            return self._transitions
        if not (self._is_free() or is_holder_gone):
            return None
        counter = self._transitions + 1
        return counter if await self._put(self._taken(counter)) else None

    async def renew(self) -> bool:
        """Renews the lease; false: it is not ours any more. Somebody else may touch the object without taking it
        (kubectl annotate)."""
        if await self._put({"renewTime": _wall_time()}):
            return True
        await self._look()
        return self._holder == self._us and await self._put({"renewTime": _wall_time()})

    async def give_up(self) -> None:
        """Gives the lease back."""
        await self._put({"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _wall_time()})

    @property
    def _spec(self) -> Json:
        spec = self._object.get("spec")
        return spec if isinstance(spec, dict) else {}

    @property
    def _holder(self) -> str:
        return str(self._spec.get("holderIdentity") or "")

    @property
    def _transitions(self) -> int:
        return int(self._spec.get("leaseTransitions") or 0)

    def _is_free(self) -> bool:
        duration_s = float(self._spec.get("leaseDurationSeconds") or self._duration_s)
        return not self._holder or _now() - self._seen[1] >= duration_s

    def _taken(self, counter: int) -> Json:
        at = _wall_time()
        return {
            "holderIdentity": self._us,
            "leaseDurationSeconds": self._duration_s,
            "acquireTime": at,
            "renewTime": at,
            "leaseTransitions": counter,
        }

    async def _look(self) -> None:
        status, answer = await self._call("GET", f"{self._path}/{self._name}")
        if status == HTTPStatus.NOT_FOUND:
            answer = {}
        elif status != HTTPStatus.OK:
            raise self._refused(status, answer)
        self._take_object(answer)

    async def _put(self, changes: Json) -> bool:
        return await self._write("PUT", f"{self._path}/{self._name}", {**self._spec, **changes})

    async def _write(self, method: str, path: str, spec: Json) -> bool:
        """False: somebody else was first, or took the object away."""
        metadata: Json = {"name": self._name, "namespace": self._namespace}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **self._object, "spec": spec}
        body.setdefault("metadata", metadata)
        status, answer = await self._call(method, path, body)
        if status in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
            return False
        if status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            raise self._refused(status, answer)
        self._take_object(answer)
        return True

    def _take_object(self, answer: Json) -> None:
        version = str(answer.get("metadata", {}).get("resourceVersion", ""))
        if version != self._seen[0]:
            self._seen = (version, _now())
        self._object = answer

    async def _call(self, method: str, path: str, body: Json | None = None) -> tuple[int, Json]:
        try:
            token = self._token.read_text()
        except OSError as error:
            raise RestError(f"cannot read the token of the account: {error}") from None
        return await self._api.call(method, path, body, {"Authorization": f"Bearer {token.strip()}"})

    def _refused(self, status: int, answer: Json) -> RestError:
        said: Any = answer.get("message", "")
        return RestError(
            f"{self._api.url} refuses the Lease {self._namespace}/{self._name} ({status}): {said}"
        )


def _wall_time() -> str:
    """The time as the API has it, for people; nobody compares it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _now() -> float:
    return asyncio.get_running_loop().time()
