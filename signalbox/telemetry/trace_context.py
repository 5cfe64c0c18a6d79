"""W3C trace context: which trace a call belongs to (https://www.w3.org/TR/trace-context/)."""

from __future__ import annotations

import re
from typing import NamedTuple

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED = 1


class TraceContext(NamedTuple):
    """What names a span across processes: trace id, span id, whether it is sampled, tracestate."""

    trace_id: int
    span_id: int
    is_sampled: bool
    tracestate: str = ""

    @property
    def traceparent(self) -> str:
        """The context as a `traceparent` header carries it."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.is_sampled):02x}"


def parse(traceparent: str, tracestate: str = "") -> TraceContext | None:
    """None: empty, or not a trace context."""
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None:
        return None
    version, trace, span, flags = match.groups()
    trace_id, span_id = int(trace, 16), int(span, 16)
    if version == "ff" or not trace_id or not span_id:
        return None
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & _SAMPLED), tracestate)
