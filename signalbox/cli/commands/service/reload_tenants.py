"""`signalbox reload-tenants`: the scheduler reads its file of tenants at once, and says what is wrong with it."""

from __future__ import annotations

import argparse
import asyncio

from signalbox.cli.admin_client import admin_client
from signalbox.cli.commands.arguments import add_scheduler

EXAMPLE = """\
examples:
  signalbox reload-tenants
  signalbox reload-tenants --scheduler 127.0.0.1:7300 && echo in force

The file is the one that the scheduler was started with (--tenants FILE), on its machine. A file with
an error changes nothing, and the error names the line or the key. The scheduler also looks at the file
by itself, twice a second; this command is for those who want to know that it was taken.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    add_scheduler(parser)


def run(args: argparse.Namespace) -> int:
    """Exit status 0 when the file is in force, 1 when it is wrong."""
    count = asyncio.run(_run(args.scheduler))
    print(f"the limits of {count} named {'tenant' if count == 1 else 'tenants'} are in force")
    return 0


async def _run(scheduler: str) -> int:
    async with admin_client(scheduler) as link:
        return await link.reload_tenants()
