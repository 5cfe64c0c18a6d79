"""Work in a thread that its caller does not outlive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = ThreadPoolExecutor(8, thread_name_prefix="batches")
"""Threads of files and batches alone: what waits for a disk, or reads a large input slowly, must not keep prompts from
being tokenized."""


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `work` returns. A caller that is cancelled goes on to be so only when the thread has ended: the file that it
    writes may be closed then."""
    running = asyncio.get_running_loop().run_in_executor(_THREADS, partial(work, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
