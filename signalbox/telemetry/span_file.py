"""Spans in files of one directory, a JSON object per line: for `signalbox trace`, where there is no collector."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from signalbox.telemetry.spans import Span, SpanCounts, wall_offset_ns
from signalbox.telemetry.trace_context import TraceContext

SUFFIX = ".spans"
MAX_BYTES = 64 << 20
"""How large the file of a process may get; further spans are dropped, and counted."""


@dataclass(frozen=True)
class RecordedSpan:
    """A span as a file has it: ids in hexadecimal, times in nanoseconds since 1970."""

    service: str
    name: str
    trace_id: str
    span_id: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any]
    events: list[tuple[str, int, Mapping[str, Any]]]
    """(name, time, attributes)."""
    links: list[str]
    """Ids of spans of an earlier attempt."""
    error: str | None = None


class FileSink:
    """The `Sink` of a file. Whatever is sampled upstream, or begins here, is written."""

    def __init__(self, service: str, directory: Path) -> None:
        """Raises OSError when the file cannot be written."""
        self.counts = SpanCounts()
        self._service = service
        self._file = (directory / f"{service}-{os.getpid()}{SUFFIX}").open("a", encoding="utf-8")

    def sample(self, parent: TraceContext | None, trace_id: int, name: str, is_entry: bool) -> str | None:
        """The tracestate of a span that is to be recorded; None: its client does not want it."""
        if parent is None:
            return ""
        return parent.tracestate if parent.is_sampled else None

    def export(self, waiting: deque[Span]) -> None:
        """Writes all that waits."""
        offset_ns = wall_offset_ns()
        while waiting:
            if self._file.tell() >= MAX_BYTES:
                self.counts.num_dropped += len(waiting)
                waiting.clear()
                break
            self._file.write(json.dumps(asdict(self._record(waiting.popleft(), offset_ns))) + "\n")
            self.counts.num_exported += 1
        self._file.flush()

    def close(self, timeout_s: float) -> None:
        """Ends the file; nothing in it waits."""
        self._file.close()

    def _record(self, span: Span, offset_ns: int) -> RecordedSpan:
        def wall(at_s: float) -> int:
            return int(at_s * 1e9) + offset_ns

        return RecordedSpan(
            self._service,
            span.name,
            f"{span.context.trace_id:032x}",
            f"{span.context.span_id:016x}",
            wall(span.start_s),
            wall(max(span.end_s, span.start_s)),
            span.attributes,
            [(name, wall(at_s), attributes) for name, at_s, attributes in span.events],
            [f"{linked.span_id:016x}" for linked in span.links],
            span.error,
        )


def read_spans(directory: Path) -> list[RecordedSpan]:
    """All spans of a directory, by their starts; a line that is not whole yet is left out."""
    found = []
    for path in directory.glob(f"*{SUFFIX}"):
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
            found.append(RecordedSpan(**json.loads(line)))
    return sorted(found, key=lambda span: (span.start_ns, -span.end_ns))
