"""How the requests of a bench choose their tokens, as arguments."""

from __future__ import annotations

import argparse
from typing import Any

from signalbox.benchmarks.load.workload import Draw
from signalbox.cli.commands.arguments import at_least_one
from signalbox.errors import InvalidRequestError


def add_draw_arguments(add: Any) -> None:
    """How the requests of a bench choose their tokens; `add` is the parser's add_argument."""
    add("--temperature", type=float, default=0.0, metavar="T", help="0 is greedy (%(default)s)")
    add("--top-k", type=at_least_one, default=0, metavar="K", help="draw from the best K (all)")
    add(
        "--top-p",
        type=float,
        default=1.0,
        metavar="P",
        help="draw from the best of this weight (%(default)s)",
    )


def draw_of(args: argparse.Namespace) -> Draw:
    """The draw that the arguments of `add_draw_arguments` describe. Raises InvalidRequestError for limits that would
    change nothing."""
    if not args.temperature and (args.top_k or args.top_p != 1):
        raise InvalidRequestError("--top-k and --top-p need a --temperature above 0", field="temperature")
    return Draw(temperature=args.temperature, top_k=args.top_k, top_p=args.top_p)
