"""A batch as it stands on the disk, and as clients see it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import orjson


class BatchStatus(StrEnum):
    """OpenAI's words."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


ENDED = {BatchStatus.FAILED, BatchStatus.COMPLETED, BatchStatus.EXPIRED, BatchStatus.CANCELLED}
"""No more happens to a batch."""
OPEN = {BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS}
"""A batch can be cancelled."""
TIMES = (
    "in_progress_at",
    "finalizing_at",
    "completed_at",
    "failed_at",
    "expired_at",
    "cancelling_at",
    "cancelled_at",
)


@dataclass
class Batch:
    """One batch. Only the process that has its lock changes it."""

    id: str
    tenant: str
    """Whose it is; empty: there are no tenants."""
    key_id: str
    """The key that its lines run under; empty: it was made where none is needed."""
    endpoint: str
    input_file_id: str
    completion_window: str
    created_at: int
    """Seconds since 1970, as all times here."""
    expires_at: int
    """When lines that have not run are given up."""
    metadata: dict[str, str] | None = None
    output_expires_s: int | None = None
    """How long its results stay, in seconds; None: as long as other files."""
    status: BatchStatus = BatchStatus.VALIDATING
    errors: list[dict[str, Any]] = field(default_factory=list)
    """What is wrong with the input, by line."""
    total: int = 0
    """Lines of the input that are to run; 0 until it was validated."""
    completed: int = 0
    failed: int = 0
    """Lines in the error file."""
    num_lines: int = 0
    """Lines of the input, empty ones included."""
    output_file_id: str | None = None
    error_file_id: str | None = None
    times: dict[str, int] = field(default_factory=dict)
    """When it came to a status, by the status's name."""

    @property
    def has_ended(self) -> bool:
        """Nothing more happens to it."""
        return self.status in ENDED

    def come_to(self, status: BatchStatus, now: float) -> None:
        """The first time counts: after a restart a status is come to again."""
        self.status = status
        self.times.setdefault(status.value, int(now))

    def dump(self) -> bytes:
        """As the disk has it."""
        return orjson.dumps(asdict(self))

    def as_json(self) -> dict[str, Any]:
        """OpenAI's `batch` object."""
        times = {name: self.times.get(name.removesuffix("_at")) for name in TIMES}
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "errors": {"object": "list", "data": self.errors} if self.errors else None,
            "input_file_id": self.input_file_id,
            "completion_window": self.completion_window,
            "status": self.status.value,
            "output_file_id": self.output_file_id,
            "error_file_id": self.error_file_id,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            **times,
            "request_counts": {"total": self.total, "completed": self.completed, "failed": self.failed},
            "metadata": self.metadata,
        }


def load_batch(data: bytes) -> Batch:
    """What `Batch.dump` wrote. Raises ValueError or TypeError."""
    fields = orjson.loads(data)
    fields["status"] = BatchStatus(fields["status"])
    return Batch(**fields)
