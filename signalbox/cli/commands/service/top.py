"""`signalbox top`: the board in a terminal."""

from __future__ import annotations

import argparse
import asyncio

from signalbox.cli.commands.arguments import add_scheduler
from signalbox.errors import StartupError

EXAMPLE = """\
examples:
  signalbox top
  signalbox top --scheduler 127.0.0.1:7300
  signalbox top --once                  # prints one look and ends

Ctrl-C ends it. It watches the scheduler, as the page at / of a frontend does; times are the scheduler's, over
the last 10 s.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    add = parser.add_argument
    add_scheduler(parser)
    add("--once", action="store_true", help="print one look and end")


def run(args: argparse.Namespace) -> int:
    """Shows the board until Ctrl-C, or until the scheduler goes. Raises StartupError when rich is not installed."""
    try:
        from signalbox.cli import board_screen  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "rich":
            raise
        raise StartupError("signalbox top needs rich: pip install 'signalbox[terminal]'") from None
    asyncio.run(board_screen.print_once(args.scheduler) if args.once else board_screen.show(args.scheduler))
    return 0
