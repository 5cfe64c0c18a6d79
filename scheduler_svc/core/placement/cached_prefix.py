"""Which worker has most of a prompt cached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scheduler_svc.core.state.requests.request import BlockNames, Request
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.hash_chain import HASH_BYTES


class _Alike(NamedTuple):
    """Workers that call the blocks of a prompt by the same names."""

    names: bytes
    block_size: int
    workers: list[Worker]


class _Longest(NamedTuple):
    num_tokens: int
    workers: list[Worker]
    """All that have so many tokens of the prompt cached."""


def find_best_prefix(
    workers: Sequence[Worker], request: Request, min_tokens: int, *, is_uniform: bool
) -> Worker | None:
    """The first of `workers`, all of which could run `request`, that have most of it cached; None: it is not
    `min_tokens` more than what somebody else has. `is_uniform`: all of them use the same names for blocks.

    One look into each cache if nobody has the first block, else a bisection of all together: what follows a missing
    block was evicted before it, so it is missing too, but for rare cases that only cost a worse guess.
    """
    alike = _by_names(workers, request) if not is_uniform else [_alike(workers[0], request, list(workers))]
    found = [_longest_of(each) for each in alike]
    most = max(each.num_tokens for each in found)
    if most < min_tokens or all(_have_more(each, most - min_tokens) for each in alike):
        return None
    holders = {id(worker) for each in found if each.num_tokens == most for worker in each.workers}
    return next(worker for worker in workers if id(worker) in holders)


def _alike(worker: Worker, request: Request, workers: list[Worker]) -> _Alike:
    """`workers` that use the names of `worker`."""
    names: BlockNames = worker.names_of(request)
    return _Alike(names.hashes, worker.info.block_size, workers)


def _by_names(workers: Sequence[Worker], request: Request) -> list[_Alike]:
    found: dict[tuple[bytes, int], _Alike] = {}
    for worker in workers:
        key = (worker.table.identity, worker.info.block_size)
        alike = found.get(key)
        if alike is None:
            alike = found[key] = _alike(worker, request, [])
        alike.workers.append(worker)
    return list(found.values())


def _longest_of(alike: _Alike) -> _Longest:
    low, high, holders = 0, len(alike.names) // HASH_BYTES, alike.workers
    middle = 1  # of most prompts nobody has anything
    while low < high:
        content = _content(alike, middle)
        having = [worker for worker in holders if worker.pool.has(content)]
        if having:
            low, holders = middle, having
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return _Longest(low * alike.block_size, holders)


def _have_more(alike: _Alike, num_tokens: int) -> bool:
    """All of them have more tokens of the prompt cached than so many."""
    number = num_tokens // alike.block_size + 1
    if number * HASH_BYTES > len(alike.names):
        return False
    content = _content(alike, number)
    return all(worker.pool.has(content) for worker in alike.workers)


def _content(alike: _Alike, number: int) -> bytes:
    """Name of the block with that number, from 1 on."""
    return alike.names[(number - 1) * HASH_BYTES : number * HASH_BYTES]
