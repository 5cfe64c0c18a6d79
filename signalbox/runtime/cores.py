"""The cores of this machine, and how many of them the model gets."""

from __future__ import annotations

import logging

from signalbox.runtime.machine.share import share_of, spins
from signalbox.runtime.machine.system import this_machine

logger = logging.getLogger(__name__)


def threads_per_worker(num_workers: int = 1) -> int:
    """How many threads each of so many workers gets unless somebody says a number."""
    return share_of(this_machine(), num_workers).threads


def tell_threads(wanted: int | None) -> int:
    """Threads of the model of this process, and says in the log why so many. `wanted`: what the operator says; None:
    nothing."""
    if wanted is not None:
        logger.info("threads of the model: %d, as --threads says", wanted)
        return wanted
    share = share_of(this_machine())
    logger.info("threads of the model: %d (%s)", share.threads, share.reason)
    return share.threads


def spin_count() -> str:
    """GOMP_SPINCOUNT, for OpenMP's threads of a worker. Those that do a decoder's lists of works (`team.h`) look as
    often as `LONG_SPINS` says, whatever the machine."""
    return str(spins(this_machine()))
