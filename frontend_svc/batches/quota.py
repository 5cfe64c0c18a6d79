"""How much may be kept of files and batches: in all, and by each tenant, so that none fills the room of all."""

from __future__ import annotations

import errno
import time
from pathlib import Path

from frontend_svc.batches.usage import TenantUsage, Usage, UsageMeter
from signalbox.errors import ResourceExhaustedError

_USAGE_S = 2.0


class DiskQuota:
    """What may be kept under one folder. It is measured every few seconds. Its methods block."""

    def __init__(self, root: Path, max_bytes: int, tenant_max_bytes: int | None = None) -> None:
        """tenant_max_bytes: of each tenant; None: as many as there are. Who has no name is no tenant."""
        self._max_bytes = max_bytes
        self._tenant_max_bytes = max_bytes if tenant_max_bytes is None else tenant_max_bytes
        self._meter = UsageMeter(root)
        self._measured_s = -_USAGE_S
        self._usage = Usage()

    def note(self, name: str, tenant: str) -> None:
        """A file or a batch of this tenant begins."""
        self._meter.note(name, tenant)

    def check(self, tenant: str) -> None:
        """Raises ResourceExhaustedError when nothing more may be kept, OSError when that cannot be measured."""
        if (told := self._excess(tenant)) is not None:
            raise ResourceExhaustedError(f"{told}; delete files, or wait until some expire")

    def check_room(self, tenant: str) -> None:
        """Raises OSError when nothing more may be kept: batches then wait as they do for a full disk."""
        if (told := self._excess(tenant)) is not None:
            raise OSError(errno.EDQUOT, told)

    def check_files(self, tenant: str, most: int) -> None:
        """Raises ResourceExhaustedError when a tenant has so many files, OSError."""
        _check_count(tenant, self._of(tenant).num_files, most, "files")

    def check_batches(self, tenant: str, most: int) -> None:
        """Raises ResourceExhaustedError when a tenant has so many batches, OSError."""
        _check_count(tenant, self._of(tenant).num_batches, most, "batches")

    def _excess(self, tenant: str) -> str | None:
        """Which bound is reached; None: there is room."""
        used = self._measured().num_bytes
        if used >= self._max_bytes:
            return f"files_max_bytes: {used} of {self._max_bytes} bytes are kept"
        mine = self._of(tenant).num_bytes
        if tenant and mine >= self._tenant_max_bytes:
            return f"files_tenant_max_bytes: {mine} of {self._tenant_max_bytes} bytes are kept by {tenant}"
        return None

    def _of(self, tenant: str) -> TenantUsage:
        return self._measured().of_tenants.get(tenant, TenantUsage())

    def _measured(self) -> Usage:
        now = time.monotonic()
        if now - self._measured_s >= _USAGE_S:
            self._usage = self._meter.measure()
            self._measured_s = now
        return self._usage


def _check_count(tenant: str, num: int, most: int, what: str) -> None:
    if tenant and num >= most:
        raise ResourceExhaustedError(f"{num} {what} of {tenant} are kept here, {most} may be; delete some")
