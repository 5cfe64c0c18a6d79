"""`signalbox safe-mode`: an operator suspends the classes below a level, and lets them go on."""

from __future__ import annotations

import argparse
import asyncio

from signalbox.board.link import read_safe_mode
from signalbox.cli.admin_client import admin_client
from signalbox.cli.commands.arguments import add_scheduler, priority
from signalbox.cli.safe_mode import describe
from signalbox.errors import InvalidRequestError

EXAMPLE = """\
examples:
  signalbox safe-mode on --level 0      # only priority 0 and better (smaller numbers) go on
  signalbox safe-mode status            # what is suspended, and for whom
  signalbox safe-mode off               # all go on

Requests of suspended classes lose nothing: new ones wait, running ones are paused and keep their KV
blocks while nobody needs them (--no-safe-mode-pauses of the scheduler lets them run to their end).
They can be cancelled, and their time limits hold. The scheduler's policy must know classes:
signalbox up --scheduler-set policy=priority.

With --safe-mode-ttft-ms the scheduler sets it by itself when too many first tokens come late, and
lifts it when that has been over for long. `off` lifts that too. A new scheduler begins with it off.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    add = parser.add_argument
    add("order", choices=("on", "off", "status"), help="suspend, let go on, or only look")
    level = "with on: the last class that goes on, -1000 to 1000; those with a higher number wait"
    add("--level", type=priority, help=level)
    add_scheduler(parser)


def run(args: argparse.Namespace) -> int:
    """Gives the order and prints what is in force."""
    if args.order == "on" and args.level is None:
        raise InvalidRequestError("safe-mode on needs --level, such as --level 0", field="level")
    if args.order != "on" and args.level is not None:
        raise InvalidRequestError(f"--level goes with on, not with {args.order}", field="level")
    print(asyncio.run(_run(args)))
    return 0


async def _run(args: argparse.Namespace) -> str:
    async with admin_client(args.scheduler) as link:
        if args.order == "on":
            return describe(await link.set_safe_mode(args.level))
        if args.order == "off":
            return describe(await link.lift_safe_mode())
        return describe(read_safe_mode((await link.status()).safe_mode))
