"""API keys as the key file has them: one line of TOML each, made by `signalbox key new`.

Nothing here ever shows a value of the file: somebody may have put a key where its hash belongs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from signalbox.api_keys import HASH_PATTERN, ID_PATTERN, TENANT_PATTERN
from signalbox.errors import StartupError
from signalbox.runtime.watched_file import WatchedFile

Limit = Annotated[int, Field(ge=1)]


class Key(BaseModel):
    """What a server knows of a key, and what its owner may do."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    hash: Annotated[str, Field(pattern=f"^{HASH_PATTERN.pattern}$")]
    """The key's hash, as `signalbox key new` writes it (signalbox/api_keys.py)."""
    tenant: Annotated[str, Field(pattern=f"^{TENANT_PATTERN.pattern}$")]
    """Whose requests these are; several keys may belong to one tenant."""
    best_priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Lowest priority number that requests may have; lower runs first."""
    requests_at_once: Limit | None = None
    """Most open requests; None: no limit. Each choice of each prompt counts as a request, here and below."""
    requests_per_minute: Limit | None = None
    """Most new requests in a minute; None: no limit."""
    tokens_per_minute: Limit | None = None
    """Most tokens of prompts and outputs in a minute; None: no limit."""
    free_grammars: bool = True
    """Whether requests may bring regular expressions and grammars of their own; JSON schemas and choices they may."""
    admin: bool = False
    """May see and cancel what belongs to other tenants."""
    expires: AwareDatetime | None = None
    """From when on the key is refused, with an offset (2027-01-01T00:00:00Z); None: never."""
    models: list[str] | None = None
    """Models that requests may name; None: all."""
    paths: list[str] | None = None
    """What paths of calls begin with: `/v1/embeddings` over HTTP, `/signalbox.v1.GenerationService/` over gRPC;
    None: all."""

    def has_expired(self, now: datetime) -> bool:
        """At `now`, which has an offset."""
        return self.expires is not None and now >= self.expires

    def may_call(self, path: str) -> bool:
        """Over HTTP or gRPC."""
        return self.paths is None or path.startswith(tuple(self.paths))


def watch_keys(path: Path) -> WatchedFile[Mapping[str, Key]]:
    """Raises StartupError when the file cannot be read."""
    return WatchedFile(path, read_keys, "the keys of before stay valid")


def read_keys(path: Path) -> Mapping[str, Key]:
    """Keys by id. Raises StartupError with a sentence that names the entry and the field."""
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StartupError(f"cannot read the key file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise StartupError(f"the key file {path} is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise StartupError(f"the key file {path} is not TOML{_place_of(error)}") from None
    return {key_id: _read_key(path, number, key_id, entries) for number, key_id in enumerate(entries, 1)}


def _read_key(path: Path, number: int, key_id: str, entries: Mapping[str, object]) -> Key:
    if not ID_PATTERN.fullmatch(key_id):
        raise StartupError(f"the key file {path}: the name of entry {number} is no key id (8 hex digits)")
    try:
        return Key.model_validate(entries[key_id])
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        name = ".".join([key_id, *map(str, first["loc"])])
        reason = "is no field of a key" if first["type"] == "extra_forbidden" else first["msg"]
        raise StartupError(f"the key file {path}: {name}: {reason}") from None


def _place_of(error: tomllib.TOMLDecodeError) -> str:
    """` (at line 3, column 5)`; the rest of the message may quote the file."""
    _, found, place = str(error).rpartition(" (at ")
    return f" (at {place}" if found else ""
