"""A lease as a key of etcd that lives as long as a lease of etcd's own (its JSON gateway, version 3)."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import asdict
from http import HTTPStatus

from scheduler_svc.lease.lease import Holder
from scheduler_svc.lease.rest import Json, Rest, RestError


class EtcdStore:
    """The key `key`. The counter is etcd's revision at which it was made, which only rises."""

    def __init__(self, api: Rest, key: str, us: Holder, duration_s: float) -> None:
        """`duration_s`: whole seconds; etcd makes at least 2 of them."""
        self._api, self._key, self._us = api, _encode(key), us
        self._duration_s = math.ceil(duration_s)
        self._lease = "0"
        """Id of etcd's lease; 0: none."""
        self.holder_address = ""

    async def take(self, *, is_holder_gone: bool = False) -> int | None:
        """Takes the lease if nobody has it, or if its holder is gone; returns the counter. None: another holds it."""
        found = await self._find()
        if found is not None and not self._is_ours(found):
            if not is_holder_gone:
                return None
            # As if it had run out; the key goes with it.
            await self._call("/v3/lease/revoke", {"ID": str(found.get("lease", "0"))})
            found = None
        if found is None:
            granted = await self._call("/v3/lease/grant", {"TTL": str(self._duration_s)})
            self._lease = str(granted["ID"])
            await self._make()
            found = await self._find()
        return int(found["create_revision"]) if found is not None and self._is_ours(found) else None

    async def renew(self) -> bool:
        """Keeps the lease alive; false: it is not ours any more. What has run out is taken again when nobody else
        wanted it."""
        answer = await self._call("/v3/lease/keepalive", {"ID": self._lease})
        found = await self._find()
        if found is None:
            return await self.take() is not None
        has_time = int(answer.get("result", {}).get("TTL", 0)) > 0
        return has_time and self._is_ours(found)

    async def give_up(self) -> None:
        """Gives the lease back; its keys go with it."""
        await self._call("/v3/lease/revoke", {"ID": self._lease})

    async def _make(self) -> None:
        """Makes the key, unless somebody has made it in the meantime."""
        value = _encode(json.dumps(asdict(self._us)))
        is_absent = {"key": self._key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}
        put = {"request_put": {"key": self._key, "value": value, "lease": self._lease}}
        await self._call("/v3/kv/txn", {"compare": [is_absent], "success": [put]})

    async def _find(self) -> Json | None:
        """The key as it is now; None: there is none."""
        found = (await self._call("/v3/kv/range", {"key": self._key})).get("kvs", [])
        self.holder_address = _address(found[0]) if found else ""
        return found[0] if found else None

    def _is_ours(self, found: Json) -> bool:
        return self._lease != "0" and str(found.get("lease", "0")) == self._lease

    async def _call(self, path: str, body: Json) -> Json:
        status, answer = await self._api.call("POST", path, body)
        if status != HTTPStatus.OK or "error" in answer:
            said = answer.get("message") or answer.get("error") or answer
            raise RestError(f"{self._api.url}{path} answers {status}: {said}")
        return answer


def _address(found: Json) -> str:
    try:
        return str(json.loads(base64.b64decode(found["value"]))["address"])
    except (ValueError, KeyError, TypeError):
        return ""


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
