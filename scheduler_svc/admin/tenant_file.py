"""The file that says what tenants may have: TOML, or JSON when its name ends so. It is read again when it changes.

[default]                 # tenants that are not named
max_queued = 1000

[tenants.acme]
weight = 3.0
max_running = 32
tokens_per_s = 20000
highest_priority = 0
"""

from __future__ import annotations

import json
import logging
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scheduler_svc.core.queue.tenants import TenantLimits

logger = logging.getLogger(__name__)
_POSITIVE = {"weight": float, "max_running": int, "max_queued": int, "tokens_per_s": float}
Limits = tuple[TenantLimits, dict[str, TenantLimits]]


def parse_tenants(text: str, *, is_json: bool) -> Limits:
    """The default and the named limits. Raises ValueError with a sentence that names the key."""
    content = json.loads(text) if is_json else tomllib.loads(text)
    if not isinstance(content, dict):
        raise ValueError("tenants file: expected a table with `default` and `tenants`")
    unknown = sorted(set(content) - {"default", "tenants"})
    if unknown:
        raise ValueError(f"tenants file: unknown key {unknown[0]!r}; known are default and tenants")
    named = content.get("tenants", {})
    if not isinstance(named, dict):
        raise ValueError("tenants: expected a table of tenants")
    default = _limits("default", content.get("default", {}))
    return default, {name: _limits(f"tenants.{name}", table) for name, table in named.items()}


def _limits(where: str, table: Any) -> TenantLimits:
    if not isinstance(table, dict):
        raise ValueError(f"{where}: expected a table")
    for key, value in table.items():
        name = f"{where}.{key}"
        if key not in TenantLimits.__dataclass_fields__:
            raise ValueError(f"{name}: unknown; known are {', '.join(TenantLimits.__dataclass_fields__)}")
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if key == "highest_priority":
            if not is_whole:
                raise ValueError(f"{name}: expected a whole number, got {value!r}")
        elif not (is_whole or (_POSITIVE[key] is float and isinstance(value, float))) or not value > 0:
            kind = "whole number" if _POSITIVE[key] is int else "number"
            raise ValueError(f"{name}: expected a {kind} above 0, got {value!r}")
    return TenantLimits(**table)


class TenantFile:
    """Hands the limits on whenever the file has changed. A file that has become wrong changes nothing."""

    def __init__(self, path: str, use: Callable[[TenantLimits, dict[str, TenantLimits]], None]) -> None:
        self.path, self._use = Path(path), use
        self._seen: tuple[int, int] | None = None

    def read(self) -> Limits:
        """What it says now. Raises ValueError with a sentence, OSError."""
        status = self.path.stat()
        self._seen = (status.st_mtime_ns, status.st_size)
        return parse_tenants(self.path.read_text("utf-8"), is_json=self.path.suffix == ".json")

    def load(self) -> int:
        """Reads it, changed or not, and hands its limits on; returns the number of tenants that it names. Raises
        ValueError with a sentence, OSError: then the limits stay as they are."""
        default, named = self.read()
        self._use(default, named)
        logger.info("tenants file %s: limits of %d tenants", self.path, len(named))
        return len(named)

    def reload(self) -> None:
        """Reads it if it has changed."""
        try:
            status = self.path.stat()
            if (status.st_mtime_ns, status.st_size) != self._seen:
                self.load()
        except (OSError, ValueError) as error:
            logger.error("tenants file %s: %s; the limits stay as they are", self.path, error)
