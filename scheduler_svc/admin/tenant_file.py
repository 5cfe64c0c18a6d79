"""The file that says what tenants may have: TOML, or JSON when its name ends so. It is read again when it changes.

[default]                 # tenants that are not named
max_queued = 1000

[tenants.acme]
weight = 3.0
max_running = 32
tokens_per_s = 20000
best_priority = 0
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from scheduler_svc.core.state.requests.tenants import TenantLimits
from signalbox.errors import StartupError
from signalbox.runtime.watched_file import WatchedFile

Limits = tuple[TenantLimits, dict[str, TenantLimits]]
"""Limits of tenants that are not named, and of those that are."""


class _Content(BaseModel):
    """The content of the whole file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    default: TenantLimits = TenantLimits()
    tenants: dict[str, TenantLimits] = {}


def watch_tenants(path: Path) -> WatchedFile[Limits]:
    """Raises StartupError when the file cannot be read."""
    return WatchedFile(path, _read, "the limits stay as they are")


def parse_tenants(text: str, *, is_json: bool) -> Limits:
    """Raises ValueError with a sentence that names the key."""
    try:
        content = _Content.model_validate(json.loads(text) if is_json else tomllib.loads(text))
    except ValidationError as error:
        raise ValueError(_sentence(error)) from None
    return content.default, content.tenants


def _read(path: Path) -> Limits:
    try:
        return parse_tenants(path.read_text("utf-8"), is_json=path.suffix == ".json")
    except OSError as error:
        raise StartupError(f"cannot read the file of tenants {path}: {error.strerror}") from None
    except ValueError as error:
        raise StartupError(f"the file of tenants {path}: {error}") from None


def _sentence(error: ValidationError) -> str:
    """A sentence about what is wrong first."""
    first: Any = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"])) or "the file"
    if first["type"] != "extra_forbidden":
        return f"{place}: {first['msg']}, got {first['input']!r}"
    known = TenantLimits.model_fields if len(first["loc"]) > 1 else _Content.model_fields
    return f"{place}: unknown; known are {', '.join(known)}"
