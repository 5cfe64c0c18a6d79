"""`signalbox status`: what the scheduler knows of queue, workers and cache, or of one request."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf.message import Message

from signalbox.board.link import health_of, read_checkpoints, read_disk, read_groups, read_safe_mode, role_of
from signalbox.cli import explanation_view
from signalbox.cli.admin_client import admin_client, is_drained
from signalbox.cli.commands.arguments import add_scheduler
from signalbox.cli.safe_mode import describe
from signalbox.cli.table import count, render
from signalbox.errors import RequestNotFoundError
from signalbox.v1 import admin_pb2

EXAMPLE = """\
examples:
  signalbox status
  signalbox status --scheduler 127.0.0.1:7300 --json
  signalbox status cmpl-2f1c...         # where that request is, and why it waits

A request is named by the id that its client has (`id` of an answer, `request_id` over gRPC). Further
choices of its call are shown with it, and all requests of that id when several frontends use it. Exit
status 1 when the scheduler knows none: it has ended, was refused, or has not come to the scheduler.
"""
HEADS = (
    *("worker", "model", "address", "state", "running", "preempted"),
    *("blocks held", "cached", "steps", "prefix hits", "drafts right", "tokens out"),
)
NUM_WORD_COLUMNS = 4
GROUP_HEADS = ("worker", "group", "held", "cached", "host", "made", "used", "evicted")
NUM_GROUP_WORDS = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    add = parser.add_argument
    add("request", nargs="?", metavar="REQUEST", help="a request's id (queue, workers and cache)")
    add_scheduler(parser)
    add("--json", action="store_true", help="print the answer as JSON")


def run(args: argparse.Namespace) -> int:
    """Asks once and prints. Raises RequestNotFoundError for a request that the scheduler does not know."""
    if args.request is not None:
        explained = asyncio.run(_explain(args.scheduler, args.request))
        if args.json:
            print(json.dumps({"requests": [explanation_view.to_json(each) for each in explained]}, indent=2))
        else:
            print("\n\n".join(map(explanation_view.to_text, explained)))
        return 0
    status = asyncio.run(_ask(args.scheduler))
    if args.json:
        print(json.dumps(to_json(status), indent=2))
    else:
        print(to_table(status, args.scheduler))
    return 0


async def _ask(scheduler: str) -> admin_pb2.GetStatusResponse:
    async with admin_client(scheduler) as link:
        return await link.status()


async def _explain(scheduler: str, request_id: str) -> Sequence[admin_pb2.RequestExplanation]:
    async with admin_client(scheduler) as link:
        explained = (await link.explain(request_id)).requests
    if not explained:
        raise RequestNotFoundError(
            f"the scheduler knows no request {request_id!r}: it has ended, was refused, or has not come there"
        )
    return explained


def to_json(status: admin_pb2.GetStatusResponse) -> dict[str, Any]:
    """All fields by their names in the proto; numbers stay numbers, where MessageToDict quotes some."""
    return {
        **_fields(status),
        "workers": [_worker(worker) for worker in status.workers],
        "safe_mode": dataclasses.asdict(read_safe_mode(status.safe_mode)),
    }


def _worker(worker: admin_pb2.WorkerStatus) -> dict[str, Any]:
    checkpoints, disk = read_checkpoints(worker), read_disk(worker)
    return {
        **_fields(worker),
        "groups": [dataclasses.asdict(group) for group in read_groups(worker)],
        "checkpoints": dataclasses.asdict(checkpoints) if checkpoints is not None else None,
        "role": role_of(worker.role),
        "disk": dataclasses.asdict(disk) if disk is not None else None,
    }


def _fields(message: Message) -> dict[str, Any]:
    return {field.name: getattr(message, field.name) for field in message.DESCRIPTOR.fields}


def to_table(status: admin_pb2.GetStatusResponse, scheduler: str) -> str:
    """A line on the scheduler, one per worker, and one per group of layers that a worker has beside others."""
    summary = (
        f"scheduler {scheduler}: {count(status.num_waiting, 'request')} waiting, "
        f"{count(status.num_frontends, 'frontend')}, {count(len(status.workers), 'worker')}"
    )
    mode = read_safe_mode(status.safe_mode)
    if mode.level is not None or mode.burn_rate is not None:
        summary += f"\n{describe(mode)}"
    if not status.workers:
        return summary
    rows = [HEADS, *map(_row, status.workers)]
    lines = [summary, "", *render(rows, NUM_WORD_COLUMNS)]
    groups = [row for worker in status.workers for row in _group_rows(worker)]
    if groups:
        lines += ["", *render([GROUP_HEADS, *groups], NUM_GROUP_WORDS)]
    disks = [line for worker in status.workers if (line := _disk_line(worker))]
    if disks:
        lines += ["", *disks]
    return "\n".join(lines)


def _row(worker: admin_pb2.WorkerStatus) -> tuple[str, ...]:
    held = worker.num_blocks - worker.num_free_blocks - worker.num_cached_blocks
    queried, drafted = worker.num_prefix_query_tokens, worker.num_draft_tokens
    return (
        worker.worker_id,
        worker.model,
        worker.address,
        _state(worker),
        str(worker.num_running),
        str(worker.num_preempted),
        f"{held} of {worker.num_blocks}",
        str(worker.num_cached_blocks),
        str(worker.num_steps),
        f"{worker.num_prefix_hit_tokens / queried:.0%}" if queried else "-",
        f"{worker.num_accepted_tokens / drafted:.0%}" if drafted else "-",
        str(worker.num_output_tokens),
    )


def _group_rows(worker: admin_pb2.WorkerStatus) -> Iterator[tuple[str, ...]]:
    for group in read_groups(worker):
        held = f"{group.num_held_blocks} of {group.num_blocks}"
        host = _of(group.num_used_host_blocks, group.num_host_blocks)
        yield worker.worker_id, group.name, held, str(group.num_cached_blocks), host, "-", "-", "-"
    kept = read_checkpoints(worker)
    if kept is not None:
        held = f"{kept.num_held_checkpoints} of {kept.num_checkpoints}"
        host = _of(kept.num_used_host_checkpoints, kept.num_host_checkpoints)
        counts = (kept.num_made, kept.num_used, kept.num_evicted)
        yield worker.worker_id, kept.name, held, str(kept.num_cached_checkpoints), host, *map(str, counts)


def _of(count: int, of: int) -> str:
    return f"{count} of {of}" if of else "-"


def _disk_line(worker: admin_pb2.WorkerStatus) -> str:
    disk = read_disk(worker)
    if disk is None:
        return ""
    off = ", which is left alone for a while" if disk.is_off else ""
    return (
        f"{worker.worker_id}: {count(disk.num_blocks, 'block')} on disk{off}; {disk.num_stored_blocks} stored, "
        f"{disk.num_loaded_blocks} loaded, {disk.num_lost_blocks} lost, {count(disk.num_hit_tokens, 'token')} hit"
    )


def _state(worker: admin_pb2.WorkerStatus) -> str:
    """In words, with the role behind it where it has one, and the ranks where there are several."""
    role = role_of(worker.role)
    ranks = f", {worker.num_ranks} ranks" if worker.num_ranks > 1 else ""
    return _health(worker) + (f", {role}" if role != "both" else "") + ranks


def _health(worker: admin_pb2.WorkerStatus) -> str:
    if not worker.attached:
        return "lost"
    health = health_of(worker.health)
    if health != "good":
        return health
    if worker.num_unheard_by:
        return f"unreachable for {count(worker.num_unheard_by, 'frontend')}"
    if not worker.draining:
        return "attached"
    return "drained" if is_drained(worker) else "draining"
