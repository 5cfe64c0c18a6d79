"""`signalbox drain`: a worker, or a whole ring, takes nothing new and ends what it has."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from signalbox.cli.admin_client import AdminClient, admin_client, is_drained
from signalbox.cli.commands.arguments import above_zero, add_scheduler
from signalbox.errors import DeadlineExceededError, InvalidRequestError, UnavailableError

EXAMPLE = """\
examples:
  signalbox drain                       # everything: a ring of `signalbox up` ends when nothing runs any more
  signalbox drain worker-1              # then stop or replace that worker; requests go to the others
  signalbox drain worker-1 --resume     # take requests again

A request that no other worker can take is refused meanwhile (503, UNAVAILABLE). A frontend drains by
itself when it gets SIGTERM. The order is forgotten when the worker or the scheduler starts anew.
"""
POLL_S = 0.25


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    add = parser.add_argument
    add("workers", nargs="*", metavar="WORKER", help="as `signalbox status` lists them (all)")
    add_scheduler(parser)
    add("--resume", action="store_true", help="take requests again")
    add("--no-wait", dest="wait", action="store_false", help="do not wait until nothing runs any more")
    add("--timeout", type=above_zero, metavar="S", help="give up waiting after S seconds; the order stays")


def run(args: argparse.Namespace) -> int:
    """Exit status 0 when the workers are drained, 1 when they were not within --timeout."""
    asyncio.run(_run(args))
    return 0


async def _run(args: argparse.Namespace) -> None:
    async with admin_client(args.scheduler) as link:
        workers = await _choose(link, args.workers)
        for worker in workers:
            count = await link.drain(worker, resume=args.resume)
            print(f"{worker} {_told(count, args.resume)}", flush=True)
        if args.wait and not args.resume:
            try:
                async with asyncio.timeout(args.timeout):
                    await _wait(link, workers)
            except TimeoutError:
                raise DeadlineExceededError(
                    f"requests still run after {args.timeout:g} s; the workers go on draining"
                ) from None


async def _choose(link: AdminClient, wanted: Sequence[str]) -> list[str]:
    """All workers, or those wanted. Raises InvalidRequestError for one that is not there."""
    known = sorted(worker.worker_id for worker in (await link.status()).workers)
    for worker in wanted:
        if worker not in known:
            raise InvalidRequestError(
                f"there is no worker {worker}; known are {', '.join(known) or 'none'}", field="workers"
            )
    if not known:
        raise UnavailableError("the scheduler knows no worker: there is nothing to drain")
    return list(dict.fromkeys(wanted)) or known


async def _wait(link: AdminClient, workers: Sequence[str]) -> None:
    """Returns when nothing is left on any of them; one that is gone has nothing left."""
    left = set(workers)
    while left:
        busy = {worker.worker_id for worker in (await link.status()).workers if not is_drained(worker)}
        for worker in sorted(left - busy):
            print(f"{worker} is drained", flush=True)
        left &= busy
        if left:
            await asyncio.sleep(POLL_S)


def _told(count: int, resumed: bool) -> str:
    running = "1 request" if count == 1 else f"{count} requests"
    return f"takes requests again; {running} there" if resumed else f"takes nothing new; {running} there"
