"""Which identities the workers of a model have."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.model_identity import ModelIdentity


def identities_of(workers: Iterable[Worker]) -> dict[str, set[ModelIdentity]]:
    """Identities by model; one each, but while weights are replaced."""
    found: dict[str, set[ModelIdentity]] = {}
    for worker in workers:
        found.setdefault(worker.info.model, set()).add(worker.info.identity)
    return found


def difference_to(worker: Worker, workers: Iterable[Worker]) -> str:
    """What an operator has to know who did not mean it: another worker of the model has another identity. Empty: none
    has."""
    info = worker.info
    for other in workers:
        if other.info.model == info.model and other.info.identity != info.identity:
            return (
                f"workers of {info.model!r} differ: {info.worker_id} has {info.identity}, {other.info.worker_id} has"
                f" {other.info.identity}; they share no blocks, and outputs go on where they began"
            )
    return ""
