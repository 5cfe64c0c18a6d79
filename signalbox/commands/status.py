"""`signalbox status`: what the scheduler knows of queue, workers and cache."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

import grpc
from google.protobuf.message import Message

from signalbox import rpc
from signalbox.client import error_of
from signalbox.commands.arguments import address
from signalbox.v1 import scheduler_pb2, scheduler_pb2_grpc

EXAMPLE = """\
examples:
  signalbox status
  signalbox status --scheduler 127.0.0.1:7300 --json
"""
TIMEOUT_S = 10
HEADS = (
    *("worker", "model", "address", "state", "running", "preempted"),
    *("blocks held", "cached", "steps", "prefix hits", "tokens out"),
)
NUM_WORD_COLUMNS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    add = parser.add_argument
    add("--scheduler", type=address, default="127.0.0.1:7300", help="gRPC of the scheduler (%(default)s)")
    add("--json", action="store_true", help="print the answer as JSON")


def run(args: argparse.Namespace) -> int:
    """Asks once and prints."""
    status = asyncio.run(_ask(args.scheduler))
    if args.json:
        print(json.dumps(to_json(status), indent=2))
    else:
        print(to_table(status, args.scheduler))
    return 0


async def _ask(scheduler: str) -> scheduler_pb2.GetStatusResponse:
    async with rpc.channel(scheduler) as channel:
        stub: Any = scheduler_pb2_grpc.SchedulerServiceStub(channel)
        try:
            status = await stub.GetStatus(scheduler_pb2.GetStatusRequest(), timeout=TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise error_of(error, scheduler) from None
    assert isinstance(status, scheduler_pb2.GetStatusResponse)
    return status


def to_json(status: scheduler_pb2.GetStatusResponse) -> dict[str, Any]:
    """All fields by their names in the proto; numbers stay numbers, where MessageToDict quotes some."""
    return {**_fields(status), "workers": [_fields(worker) for worker in status.workers]}


def _fields(message: Message) -> dict[str, Any]:
    return {field.name: getattr(message, field.name) for field in message.DESCRIPTOR.fields}


def to_table(status: scheduler_pb2.GetStatusResponse, scheduler: str) -> str:
    """A line on the scheduler and one per worker."""
    summary = (
        f"scheduler {scheduler}: {_count(status.num_waiting, 'request')} waiting, "
        f"{_count(status.num_frontends, 'frontend')}, {_count(len(status.workers), 'worker')}"
    )
    if not status.workers:
        return summary
    rows = [HEADS, *map(_row, status.workers)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(_pad, row, widths, range(len(row)))).rstrip() for row in rows]
    return "\n".join([summary, "", *lines])


def _row(worker: scheduler_pb2.WorkerStatus) -> tuple[str, ...]:
    held = worker.num_blocks - worker.num_free_blocks - worker.num_cached_blocks
    asked = worker.num_prefix_query_tokens
    return (
        worker.worker_id,
        worker.model,
        worker.address,
        "attached" if worker.attached else "lost",
        str(worker.num_running),
        str(worker.num_preempted),
        f"{held} of {worker.num_blocks}",
        str(worker.num_cached_blocks),
        str(worker.num_steps),
        f"{worker.num_prefix_hit_tokens / asked:.0%}" if asked else "-",
        str(worker.num_output_tokens),
    )


def _pad(cell: str, width: int, column: int) -> str:
    """Words to the left, numbers to the right."""
    return cell.ljust(width) if column < NUM_WORD_COLUMNS else cell.rjust(width)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
