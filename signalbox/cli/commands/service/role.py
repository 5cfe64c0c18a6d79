"""`signalbox role`: a worker is there for prompts, for decoding, or for both."""

from __future__ import annotations

import argparse
import asyncio

from signalbox.cli.admin_client import admin_client
from signalbox.cli.commands.arguments import add_scheduler
from signalbox.protocol.enums import WorkerRole

EXAMPLE = """\
examples:
  signalbox role worker-1 prefill
  signalbox role worker-2 decode
  signalbox role worker-1 both          # as it was

Nothing is drained: what runs goes on, or is handed over where that pays. Workers that were
started without --hand-off have no role. The order is forgotten when the worker or the scheduler starts anew; the
worker's own setting is --role.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    parser.add_argument("worker", metavar="WORKER", help="as `signalbox status` lists them")
    parser.add_argument(
        "role", choices=[role.name.lower() for role in WorkerRole], help="what it is there for"
    )
    add_scheduler(parser)


def run(args: argparse.Namespace) -> int:
    """Exit status 0 when it is said, 1 when it was refused."""
    asyncio.run(_run(args.scheduler, args.worker, WorkerRole[args.role.upper()]))
    print(f"{args.worker} is there for {args.role}")
    return 0


async def _run(scheduler: str, worker_id: str, role: WorkerRole) -> None:
    async with admin_client(scheduler) as link:
        await link.set_role(worker_id, role)
