"""The frame of a service process: settings, logging, signals, exit status."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from signalbox.errors import LeaseLostError, StartupError
from signalbox.runtime import config, logs
from signalbox.runtime.parts import watch_rest
from signalbox.runtime.start import streams

S = TypeVar("S", bound=config.Settings)
PARENT = "SIGNALBOX_PARENT_PID"
"""Environment variable by which whoever starts a service and wants it to end with itself says who it is."""
SHORT_OF_MEMORY_STATUS = 75
"""Exit status of a service that ended in order before it was killed for want of memory (EX_TEMPFAIL of sysexits.h):
whoever started it starts it again."""
MEMORY_ENDS = "SIGNALBOX_MEMORY_ENDS"
"""Environment variable by which whoever starts a service again says how often it has ended so."""
MOST_FILES = 4096
"""Open files that a service asks for; whoever starts it may allow it more."""
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def run(
    name: str,
    settings: type[S],
    serve: Callable[[S, asyncio.Event], Awaitable[None]],
    prepare: Callable[[S], None] = lambda settings: None,
) -> None:
    """Main function of a service: reads settings from argv and environment, then runs `serve(settings, stop)`.
    `prepare(settings)` comes before there is an event loop.

    `stop` is set by SIGTERM and SIGINT; `serve` then drains and returns. Exits 1 with one sentence on stderr when the
    service cannot start.
    """
    die_with_parent()
    streams.open_missing()
    raise_file_limit()
    level = os.environ.get("SIGNALBOX_LOG_LEVEL", "INFO")
    logs.set_up(name, level)
    try:
        loaded = config.load(settings, sys.argv[1:])
        logs.set_up(name, level, loaded.log_format, loaded.ids)
        loaded.take_effect()
        prepare(loaded)
        asyncio.run(_until_stopped(loaded, serve))
    except (StartupError, LeaseLostError) as error:
        print(f"{name}: {error.message}", file=sys.stderr)
        raise SystemExit(1) from None


async def _until_stopped(settings: S, serve: Callable[[S, asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    watch_rest(loop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, stop)


def raise_file_limit() -> None:
    """Raises the limit of open files, which shells set low for programs that cannot have many, towards `MOST_FILES`:
    each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def collector_off() -> Iterator[None]:
    """For large imports: walking over what they make takes a sixth of their time, and half a second for each later
    collection. It lives as long as the process, so none walks over it again."""
    num_modules = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > num_modules:
            gc.freeze()
        gc.enable()


def settle_memory() -> None:
    """Keeps the garbage collector from walking again and again over what a service has loaded, which lives as long as
    the process (tens of milliseconds each time in a worker). To be called once, when it is about to serve."""
    gc.collect()
    gc.freeze()


def take_memory_ends() -> int:
    """Number of earlier processes of this service that ended for want of memory, from the environment; 0 if unset."""
    text = os.environ.pop(MEMORY_ENDS, "")
    return int(text) if text.isdecimal() else 0


def die_with_parent() -> None:
    """For a process that was started with PARENT in its environment: asks the kernel (Linux) for SIGTERM when that
    parent dies, so that nothing is left running behind a killed one. Exits if it is gone already.

    The child does it itself: code between fork and exec would keep the parent from starting it by vfork, and a fork
    runs gRPC's handlers, which crash now and then where its threads are at work."""
    parent = os.environ.pop(PARENT, "")
    if _LIBC is None or not parent:
        return
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        raise SystemExit(128 + signal.SIGTERM)
