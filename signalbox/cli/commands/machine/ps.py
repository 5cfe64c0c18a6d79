"""`signalbox ps`: the rings that run on this machine."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time

from signalbox.cli.ring.registry import RunningRing, list_rings
from signalbox.cli.table import render

EXAMPLE = """\
examples:
  signalbox ps
  signalbox ps --json

The rings of this user that `signalbox up` has started and that have not ended. Of what they do:
`signalbox status --scheduler HOST:PORT`.
"""
HEADS = ("pid", "model", "OpenAI API", "gRPC API", "scheduler", "logs", "workers", "up for")
NUM_WORD_COLUMNS = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    parser.add_argument("--json", action="store_true", help="print a list as JSON")


def run(args: argparse.Namespace) -> int:
    """Lists; nothing is asked of the rings."""
    rings = list_rings()
    if args.json:
        print(json.dumps([dataclasses.asdict(ring) for ring in rings], indent=2))
    elif not rings:
        print("no ring runs here; start one: signalbox up")
    else:
        now = time.time()
        print("\n".join(render([HEADS, *(_row(ring, now) for ring in rings)], NUM_WORD_COLUMNS)))
    return 0


def _row(ring: RunningRing, now: float) -> tuple[str, ...]:
    addresses = f"http://{ring.http}/v1", ring.grpc, ring.schedulers
    age = duration(now - ring.started_at)
    return str(ring.pid), ring.model, *addresses, ring.log_dir, str(ring.num_workers), age


def duration(seconds: float) -> str:
    """Its two largest units: `2 d 3 h`, `3 h 20 min`, `20 min 4 s`, `4 s`."""
    rest = max(0, int(seconds))
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        number, rest = divmod(rest, length)
        if number or parts or unit == "s":
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])
