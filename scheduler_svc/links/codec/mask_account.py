"""The number by which a worker knows whose masks are one tenant's."""

from __future__ import annotations

from hashlib import blake2b

from scheduler_svc.core.state.requests.request import Request

NUM_BYTES = 4
PERSON = b"mask account"
"""So that the number is no digest of a name anywhere else."""


def mask_account(request: Request) -> int:
    """32 bits of a digest of the tenant's name, the same with every policy and scheduler (G13). 0: the request has no
    form, and so no masks."""
    if not request.has_grammar:
        return 0
    digest = blake2b(request.tenant.encode(), digest_size=NUM_BYTES, person=PERSON)
    return int.from_bytes(digest.digest(), "little")
