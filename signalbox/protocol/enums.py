"""Enumerations of the messages, once for all services: names and numbers are those of protos/signalbox/v1
(tests/signalbox/protocol/test_enums.py compares them), and what each value means is said there."""

from __future__ import annotations

from enum import IntEnum


class RequestKind(IntEnum):
    """What a request asks for."""

    GENERATE = 1
    POOLING = 2


class ModelTask(IntEnum):
    """What can be asked of a model; all but GENERATE are pooling requests."""

    GENERATE = 1
    EMBED = 2
    CLASSIFY = 3
    SCORE = 4
    TOKEN_EMBED = 5
    TOKEN_CLASSIFY = 6


class FinishReason(IntEnum):
    """Why a request ended."""

    STOP = 1
    LENGTH = 2
    ABORT = 3
    ERROR = 4
    DEAD_END = 5


class NotRunReason(IntEnum):
    """Why the worker did not run a row of a step."""

    STALE = 1
    ERROR = 2
    ENDED = 3


class SlotStatus(IntEnum):
    """What a slot does, in the worker's words."""

    PREPARING = 1
    PREFILL = 2
    DECODE = 3
    PREEMPTED = 4
    ENDED = 5
    IMPORTED = 6
    FROZEN = 7


class WorkerRole(IntEnum):
    """What a worker is there for."""

    BOTH = 1
    PREFILL = 2
    DECODE = 3


class LossCause(IntEnum):
    """Why an attempt was lost. Only CRASH counts against the request."""

    UNSPECIFIED = 0
    CRASH = 1
    WORKER_GONE = 2
    MOVED = 3
    SILENT = 4
    UNKNOWN = 5
    OUTPUT_LOST = 6
    BAD_BLOCKS = 7

    @classmethod
    def _missing_(cls, value: object) -> LossCause:
        """A newer scheduler knows more of them."""
        return cls.UNSPECIFIED


class ReadFault(IntEnum):
    """Whose fault the failure of a read from another worker is: whether further reads from it may fail, too."""

    UNSPECIFIED = 0
    PAIR = 1
    REQUEST = 2
    WITHDRAWN = 3

    @classmethod
    def _missing_(cls, value: object) -> ReadFault:
        """A newer worker knows more of them."""
        return cls.UNSPECIFIED


class WorkerReach(IntEnum):
    """How far a frontend reaches a worker process (docs/liveness.md, E)."""

    HEARD = 1
    SILENT = 2
    REFUSED = 3
    UNREACHABLE = 4


class BudgetKind(IntEnum):
    """Which limit of a key (docs/design.md, KB)."""

    REQUESTS_AT_ONCE = 1
    REQUESTS_PER_MINUTE = 2
    TOKENS_PER_MINUTE = 3


class WorkerExit(IntEnum):
    """How a worker's process ended."""

    CRASHED = 1
    KILLED = 2
    STOPPED = 3


class WorkerHealth(IntEnum):
    """Whether a worker gets anything new, and why not."""

    GOOD = 1
    SILENT = 2
    HUNG = 3
    SLOW = 4
    AWAY = 5


class BlockGroupKind(IntEnum):
    """What the layers of a group see of the positions behind their own."""

    WINDOW = 1
    CHUNK = 2
