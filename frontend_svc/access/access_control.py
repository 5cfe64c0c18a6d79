"""Who calls, and what they may do: the one place that the faces and the processor ask.

A face says who calls when a call comes in (`api/http/auth.py`, `api/grpc/auth.py`); the processor asks when the call
becomes requests. In between the caller travels in a context variable, as neither starlette nor grpc.aio pass anything
else along: each call runs in a task of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from frontend_svc.access.audit import AuditLog
from frontend_svc.access.keys import Key
from frontend_svc.access.lender import Lender
from frontend_svc.access.quota import KeyQuota, QuotaLease
from frontend_svc.requests.request import ClientRequest
from signalbox.api_keys import hash_key, id_of, is_same_hash, make_key
from signalbox.errors import (
    AuthenticationError,
    InternalError,
    PermissionDeniedError,
    SignalboxError,
    code_of,
)
from signalbox.runtime.watched_file import WatchedFile

FIELD = "authorization"
LOOK_EVERY_S = 0.5
"""How often the key file is looked at for a change, in seconds."""
KeyFile = WatchedFile[Mapping[str, Key]]
"""The key file that is watched: keys by id."""
_SCHEME = "bearer"
_NOBODY = Key(hash=make_key().hash, tenant="nobody")
"""Stands in for a key that is not there, so that looking takes as long; nobody has its text."""


@dataclass(frozen=True)
class Caller:
    """Who made a call, and what they may do."""

    tenant: str = ""
    """Empty: there are no tenants here."""
    best_priority: int = -1000
    is_admin: bool = True
    quota: KeyQuota | None = None
    """What the caller's key may still take; None: no limits."""
    key_id: str = ""
    """Names the caller's key; empty: there are no keys here."""
    is_batch: bool = False
    """A batch of theirs calls: half of each limit is left to their other calls."""
    models: frozenset[str] | None = None
    """Models that they may name; None: all."""
    may_bring_grammars: bool = True
    """Requests may have regular expressions and grammars of their own."""

    def require_admin(self, what: str) -> None:
        """Raises PermissionDeniedError, which names `what`."""
        if not self.is_admin:
            raise PermissionDeniedError(f"{what} needs an admin key", field=FIELD)

    def require_model(self, name: str) -> None:
        """Raises PermissionDeniedError for a model that the key is not for."""
        if self.models is not None and name not in self.models:
            raise PermissionDeniedError(f"this key is not for the model {name!r}", field="model")

    def may_cancel(self, tenant: str) -> bool:
        """Whether requests of `tenant` may be ended for this caller."""
        return self.is_admin or self.tenant == tenant

    def may_see(self, tenant: str) -> bool:
        """Whether files and batches of `tenant` are there for this caller."""
        return self.is_admin or self.tenant == tenant


ANYBODY = Caller()
"""Every caller of a server without keys."""
_caller: ContextVar[Caller] = ContextVar("caller")


class AccessControl:
    """Knows the keys and what they have used."""

    def __init__(
        self,
        key_file: KeyFile | None = None,
        *,
        share_prefix_cache: bool = False,
        lender: Lender | None = None,
    ) -> None:
        """Without a file everybody may do everything. `share_prefix_cache`: tenants may use each other's blocks.
        `lender`: who lends limits of keys; None: nobody, they are counted here alone."""
        self.audit = AuditLog()
        self._file = key_file
        self._share_prefix_cache = share_prefix_cache
        self._lender = lender
        self._quotas: dict[str, KeyQuota] = {}

    @property
    def has_keys(self) -> bool:
        """Whether calls need a key."""
        return self._file is not None

    @property
    def caller(self) -> Caller:
        """Who made the call that runs."""
        if self._file is None:
            return ANYBODY
        try:
            return _caller.get()
        except LookupError:
            # A face that forgot to ask must not become an open door.
            raise InternalError("the caller of this request was not identified") from None

    def identify(self, authorization: Sequence[str], path: str, client: str = "") -> Caller:
        """Remembers who makes the call that runs; `authorization` are the values of that header, `client` is where it
        comes from.

        Raises AuthenticationError, or PermissionDeniedError for a path that is not the key's.
        """
        if self._file is None:
            return ANYBODY
        key_id = ""
        try:
            text = _read_bearer(authorization)
            key_id = id_of(text)
            key = self._file.content.get(key_id, _NOBODY)
            if not is_same_hash(hash_key(text), key.hash):
                raise AuthenticationError("the API key is not known", field=FIELD)
            _require_valid(key, path)
        except SignalboxError as error:
            self.audit.refused(code_of(error), key_id, path, client)
            raise
        return self._enter(key_id, key, is_batch=False)

    def act_for(self, key_id: str, path: str) -> Caller:
        """The task that runs calls for a batch of this key. Raises AuthenticationError when the key is gone or has
        expired, PermissionDeniedError for a path that is not the key's."""
        if self._file is None:
            return ANYBODY
        key = self._file.content.get(key_id)
        if key is None:
            raise AuthenticationError("the API key that made this batch is not known any more", field=FIELD)
        _require_valid(key, path)
        return self._enter(key_id, key, is_batch=True)

    def _enter(self, key_id: str, key: Key, *, is_batch: bool) -> Caller:
        quota = self._quota_of(key_id, key)
        models = None if key.models is None else frozenset(key.models)
        caller = Caller(
            key.tenant, key.best_priority, key.admin, quota, key_id, is_batch, models, key.free_grammars
        )
        _caller.set(caller)
        return caller

    async def admit(self, num_requests: int) -> QuotaLease | None:
        """Takes the places of so many requests from the quota of the running call's key; None: nobody counts.

        Raises ResourceExhaustedError, PermissionDeniedError, or UnavailableError.
        """
        caller = self.caller
        if caller.quota is None:
            return None
        if caller.is_batch:
            caller.quota.require_half()
        return await caller.quota.admit(num_requests)

    def require_room(self) -> None:
        """Ahead of all work on a call: its key has room for one request. Raises ResourceExhaustedError."""
        if self.caller.quota is not None:
            self.caller.quota.require(1)

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        """Around a call that makes no request, and counts as one. Raises as `admit`."""
        lease = await self.admit(1)
        try:
            yield
        finally:
            if lease is not None:
                lease.close()

    def authorize(self, request: ClientRequest) -> ClientRequest:
        """`request` as its caller may have it. Raises PermissionDeniedError for a better priority than that, and for a
        grammar where the key is without.

        Priority 0 is what callers get who name none; it becomes their best one where that is worse.
        """
        caller = self.caller
        if caller is ANYBODY:
            return request
        if request.priority < caller.best_priority and request.priority != 0:
            raise PermissionDeniedError(
                f"{request.names.priority} is {request.priority}; the lowest number that this key may use is "
                f"{caller.best_priority}",
                field=request.names.priority,
            )
        form = request.sampling.get("structured_output")
        if form is not None and form.is_free and not caller.may_bring_grammars:
            raise PermissionDeniedError(
                f"{form.field}: this key may not bring regular expressions or grammars; a JSON schema it may",
                field=form.field,
            )
        return replace(
            request,
            priority=max(request.priority, caller.best_priority),
            tenant=caller.tenant,
            key_id=caller.key_id,
            cache_tenant="" if self._share_prefix_cache else caller.tenant,
        )

    async def keep_current(self) -> None:
        """Follows the key file until cancelled."""
        assert self._file is not None
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if await asyncio.to_thread(self._file.reload):
                self._follow()

    def _follow(self) -> None:
        """The limits may have changed. A key that is gone keeps what it has used: it may come back."""
        assert self._file is not None
        for key_id, quota in self._quotas.items():
            if key_id in self._file.content:
                quota.follow(self._file.content[key_id])

    def _quota_of(self, key_id: str, key: Key) -> KeyQuota:
        if key_id not in self._quotas:
            self._quotas[key_id] = KeyQuota(key, key_id=key_id, lender=self._lender)
        return self._quotas[key_id]


def _require_valid(key: Key, path: str) -> None:
    if key.has_expired(datetime.now(UTC)):
        raise AuthenticationError("the API key has expired", field=FIELD)
    if not key.may_call(path):
        raise PermissionDeniedError(f"this key is not for {path}", field=FIELD)


def _read_bearer(authorization: Sequence[str]) -> str:
    if not authorization:
        raise AuthenticationError("this server needs an API key: send Authorization: Bearer KEY", field=FIELD)
    scheme, _, text = authorization[0].partition(" ")
    if len(authorization) > 1 or scheme.lower() != _SCHEME or not text:
        raise AuthenticationError("the authorization is not Bearer KEY", field=FIELD)
    return text.strip()
