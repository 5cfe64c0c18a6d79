"""What others were measured at, for figures that put us beside them. docs/performance.md says on which machine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Peer:
    """The scheduler of another system."""

    name: str
    speculative: int
    """Draft tokens per step."""
    total_us: dict[int, float]
    """`schedule` and `update_from_output` of one step by running requests, microseconds."""


SCHEDULERS = (
    Peer("vLLM 0.32", 0, {64: 759, 256: 3_081, 1024: 15_255, 4096: 73_249}),
    Peer("vLLM 0.32, asynchronous", 0, {64: 877, 256: 3_581, 1024: 18_034, 4096: 86_362}),
    Peer("vLLM 0.32, asynchronous", 4, {64: 1_160, 256: 4_870, 1024: 23_851, 4096: 103_000}),
)
