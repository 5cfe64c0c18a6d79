"""Names of worker processes in orders, and the bounds of names and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # cores import the records of parts, and no generated message
    from signalbox.v1 import shared_pb2

MAX_NAME_CHARS = 256
"""Most characters of a worker's name or address."""
MAX_KEY_BYTES = 256


class WorkerName(NamedTuple):
    """One worker process."""

    worker_id: str
    instance: str


def read_worker(message: shared_pb2.WorkerRef) -> WorkerName:
    """The name in a message."""
    return WorkerName(message.worker_id, message.worker_instance)


def write_worker(message: shared_pb2.WorkerRef, name: WorkerName) -> None:
    """Puts the name into a message."""
    message.worker_id, message.worker_instance = name


def are_valid(*names: str) -> bool:
    """None of the names and addresses is empty, or too long."""
    return all(0 < len(name) <= MAX_NAME_CHARS for name in names)
