"""`signalbox trace`: where the time of a request went, as its services' spans tell."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from signalbox.cli.commands.machine.logs import choose_ring
from signalbox.cli.waterfall import to_svg, to_text
from signalbox.errors import RequestNotFoundError, StartupError
from signalbox.telemetry import attributes as names
from signalbox.telemetry.span_file import RecordedSpan, read_spans

EXAMPLE = """\
examples:
  signalbox up --trace
  signalbox trace cmpl-2f1c...                  # in another terminal: of the ring on this machine
  signalbox trace cmpl-2f1c... --svg trace.svg
  signalbox trace 4bf92f3577b34da6a3ce929d0e0e4736 --dir /tmp/logs     # a whole trace by its id

Services write their spans beside their logs when `signalbox up` has --trace, or where
SIGNALBOX_TRACE_DIR says. A request has its spans half a second after its end.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    add = parser.add_argument
    add("request", metavar="REQUEST", help="a request's id, or that of a trace")
    add("--dir", type=Path, help="directory with the files of spans (that of the ring's logs)")
    add("--pid", type=int, help="the ring, where there are several (the only one)")
    add("--svg", type=Path, metavar="FILE", help="write a picture instead")


def run(args: argparse.Namespace) -> int:
    """Raises RequestNotFoundError when no span is of the request."""
    directory = args.dir or Path(choose_ring(args.pid).log_dir)
    spans = spans_of(args.request, read_spans(directory))
    if not spans:
        raise RequestNotFoundError(
            f"no span in {directory} is of {args.request}; does the ring run with --trace?"
        )
    if args.svg is None:
        print(to_text(spans))
        return 0
    try:
        args.svg.write_text(to_svg(spans), encoding="utf-8")
    except OSError as error:
        raise StartupError(f"cannot write {args.svg}: {error.strerror}") from None
    return 0


def spans_of(request: str, spans: Sequence[RecordedSpan]) -> list[RecordedSpan]:
    """The spans of a request, of all its attempts, or of a trace."""
    ids = (names.REQUEST_ID, names.GEN_AI_RESPONSE_ID)
    return [
        span
        for span in spans
        if span.trace_id == request or any(span.attributes.get(name) == request for name in ids)
    ]
