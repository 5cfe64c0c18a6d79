"""`python -m signalbox.benchmarks.plots KIND OUT FILE...`: draws a figure from the JSON lines of benches."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from signalbox.benchmarks.plots import KINDS, Line, draw
from signalbox.errors import InvalidRequestError, SignalboxError

EXAMPLE = """\
examples:
  signalbox bench scheduler --running 64 256 1024 4096 > scheduler.jsonl
  signalbox bench scheduler --running 64 256 1024 4096 --speculative 4 >> scheduler.jsonl
  python -m signalbox.benchmarks.plots scheduler scheduler.svg scheduler.jsonl

  python -m signalbox.benchmarks.qos.bench > docs/data/qos.jsonl
  make figures    # each docs/data/KIND.jsonl or KIND-NAME.jsonl becomes a figure in docs/figures
"""


def read(path: Path) -> list[Line]:
    """Lines that are no JSON objects (notes of a bench) are refused: a figure must not leave out silently."""
    lines: list[Line] = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not isinstance(line, dict):
            raise InvalidRequestError(f"{path}, line {number}: not a JSON object")
        lines.append(line)
    return lines


def main() -> int:
    """Exit status 1 with one sentence when nothing could be drawn."""
    parser = argparse.ArgumentParser(
        prog="python -m signalbox.benchmarks.plots",
        description="Draws a figure from the JSON lines of benches.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", choices=KINDS, help="what was measured")
    parser.add_argument("out", type=Path, help="figure to write (.svg, .png, .pdf)")
    parser.add_argument("files", type=Path, nargs="+", help="JSON lines")
    args = parser.parse_args()
    try:
        draw(args.kind, [line for path in args.files for line in read(path)], args.out)
    except OSError as error:
        print(f"signalbox.benchmarks.plots: {error}", file=sys.stderr)
        return 1
    except SignalboxError as error:
        print(f"signalbox.benchmarks.plots: {error.message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
