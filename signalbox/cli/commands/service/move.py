"""`signalbox move`: another worker goes on with a request, where it stands."""

from __future__ import annotations

import argparse
import asyncio

from signalbox.cli.admin_client import admin_client
from signalbox.cli.commands.arguments import add_scheduler

EXAMPLE = """\
examples:
  signalbox move chatcmpl-1 worker-2
  signalbox status chatcmpl-1            # which worker has it

The client notices nothing but a pause. It works between workers of the same weights, kernels and layout
of the cache; what cannot be handed over stays where it is, and the error says why. `signalbox drain`
does this with all that a worker has.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    parser.add_argument("request", metavar="REQUEST", help="its id, as the client got it")
    parser.add_argument("worker", metavar="WORKER", help="as `signalbox status` lists them")
    add_scheduler(parser)


def run(args: argparse.Namespace) -> int:
    """Exit status 0 when it has begun, 1 when it was refused."""
    source = asyncio.run(_run(args.scheduler, args.request, args.worker))
    print(f"{source} hands {args.request} over to {args.worker}")
    return 0


async def _run(scheduler: str, request_id: str, worker_id: str) -> str:
    async with admin_client(scheduler) as link:
        return await link.move(request_id, worker_id)
