"""The spans of a request over time, for a terminal and as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from signalbox.telemetry.span_file import RecordedSpan

BAR_COLUMNS = 48
_WIDTH, _LEFT, _ROW, _TOP = 960, 260, 26, 30
_COLOURS = {"frontend": "#4878a8", "scheduler": "#c0803c", "worker": "#5a9a5a"}
_SHORT = ("signalbox.decision.", "signalbox.run.", "signalbox.")


def to_text(spans: Sequence[RecordedSpan]) -> str:
    """A row for each span and one for each of its events. spans: at least one, by their starts."""
    start_ns, length_ns = _extent(spans)
    rows = []
    for span in spans:
        first = round((span.start_ns - start_ns) / length_ns * BAR_COLUMNS)
        last = max(round((span.end_ns - start_ns) / length_ns * BAR_COLUMNS), first + 1)
        bar = (" " * first + "█" * (last - first))[:BAR_COLUMNS].ljust(BAR_COLUMNS)
        took_ms = (span.end_ns - span.start_ns) / 1e6
        failed = f"  {span.error}" if span.error else ""
        rows.append(f"{span.service:<9} {span.name:<24.24} |{bar}| {took_ms:>9.2f} ms{failed}")
        rows += [
            f"{'':<9}   {(at_ns - start_ns) / 1e6:>9.2f} ms  {name} {_numbers(attributes)}".rstrip()
            for name, at_ns, attributes in span.events
        ]
    return "\n".join(rows)


def to_svg(spans: Sequence[RecordedSpan]) -> str:
    """A picture of the same: bars, events as ticks on them; both tell their numbers under the pointer."""
    height = _TOP + _ROW * len(spans) + 10
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif"'
    body = "\n".join(_svg_rows(spans))
    return f'{head} font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'


def _svg_rows(spans: Sequence[RecordedSpan]) -> Iterator[str]:
    start_ns, length_ns = _extent(spans)

    def place(at_ns: int) -> float:
        return round(_LEFT + (at_ns - start_ns) / length_ns * (_WIDTH - _LEFT - 90), 2)

    yield f'<text x="8" y="18">{escape(spans[0].trace_id)}, {length_ns / 1e6:.2f} ms</text>'
    for index, span in enumerate(spans):
        y, x, end = _TOP + index * _ROW, place(span.start_ns), place(span.end_ns)
        fill = quoteattr("#b03030" if span.error else _COLOURS.get(span.service, "#808080"))
        title = escape(f"{span.name} {_numbers(span.attributes)}")
        yield f'<text x="8" y="{y + 15}">{escape(f"{span.service} {span.name}"[:40])}</text>'
        yield (
            f'<rect x="{x}" y="{y + 3}" width="{max(end - x, 1):.2f}" height="16" fill={fill}>'
            f"<title>{title}</title></rect>"
        )
        yield f'<text x="{max(end, x + 1) + 5:.2f}" y="{y + 15}">{(span.end_ns - span.start_ns) / 1e6:.2f} ms</text>'
        for name, at_ns, attributes in span.events:
            at = place(at_ns)
            title = escape(f"{name} {_numbers(attributes)}")
            yield (
                f'<path d="M{at} {y + 1}v20" stroke="black" stroke-width="2"><title>{title}</title></path>'
            )


def _extent(spans: Sequence[RecordedSpan]) -> tuple[int, int]:
    """Start and length of all, in nanoseconds."""
    start_ns = min(span.start_ns for span in spans)
    return start_ns, max(max(span.end_ns for span in spans) - start_ns, 1)


def _numbers(attributes: Mapping[str, Any]) -> str:
    return " ".join(f"{_shorten(name)}={value}" for name, value in attributes.items())


def _shorten(name: str) -> str:
    for prefix in _SHORT:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name
