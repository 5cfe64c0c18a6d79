"""The name of what a worker's blocks mean to another worker: only blocks under one name may be exchanged (DT1)."""

from __future__ import annotations

from hashlib import blake2b

from signalbox.protocol.model_identity import ModelIdentity
from worker_svc.core.batch import RunnerInfo

FORMAT = 1
"""Number of the layout of segment files."""
FINGERPRINT_BYTES = 16


def fingerprint_of(info: RunnerInfo, record_bytes: list[int]) -> bytes:
    """16 bytes that stand for the weights, their form, the kernels, and how a block of each group lies in memory;
    `record_bytes`: of a block of each group. ValueError where the weights are not said."""
    identity: ModelIdentity = info.identity
    if not identity.key:
        raise ValueError(
            "the weights of the model have no name, so that blocks on disk could be another model's"
        )
    groups = [f"{group.kind}/{group.reach}" for group in info.groups]
    parts = [str(FORMAT), str(info.block_size), *groups, *map(str, record_bytes)]
    return blake2b(identity.key + "|".join(parts).encode(), digest_size=FINGERPRINT_BYTES).digest()
