"""API keys: how one is made, what a server keeps of it, and where clients take theirs from.

A key is `sb_ID_SECRET`. The id is no secret: it names the key in files and logs. The secret has 256 random bits, so a
plain SHA-256 of the key is as good as a slow hash: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from dataclasses import dataclass, field

ENVIRONMENT = "SIGNALBOX_API_KEY"
"""Variable from which clients take their key."""
HASH_PREFIX = "sha256:"
ID_PATTERN = re.compile(r"[0-9a-f]{8}")
HASH_PATTERN = re.compile(HASH_PREFIX + r"[0-9a-f]{64}")
TENANT_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What names of tenants look like: such a name needs no quoting anywhere."""
_KEY = re.compile(r"sb_([0-9a-f]{8})_[A-Za-z0-9_-]{43}")


@dataclass(frozen=True)
class NewKey:
    """A key that was just made; its text is nowhere else."""

    key_id: str
    text: str = field(repr=False)

    @property
    def hash(self) -> str:
        """The key's hash, which is all that a server keeps of it."""
        return hash_key(self.text)


def make_key() -> NewKey:
    """A key that nobody has."""
    key_id = secrets.token_hex(4)
    return NewKey(key_id, f"sb_{key_id}_{secrets.token_urlsafe(32)}")


def hash_key(text: str) -> str:
    """What a server keeps of a key."""
    return HASH_PREFIX + hashlib.sha256(text.encode()).hexdigest()


def id_of(text: str) -> str:
    """The id of a key; empty for what is none."""
    match = _KEY.fullmatch(text)
    return match[1] if match else ""


def is_same_hash(left: str, right: str) -> bool:
    """Takes as long wherever the two differ."""
    return hmac.compare_digest(left.encode(), right.encode())


def key_from_environment() -> str:
    """The key of this user; empty: none."""
    return os.environ.get(ENVIRONMENT, "")
