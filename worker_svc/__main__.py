"""`worker-svc`, or `python -P -m worker_svc`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from signalbox.runtime.start import interpreter

if TYPE_CHECKING:
    from worker_svc.config import WorkerSettings
    from worker_svc.guardian.guarded import Serve

SWITCH_S = 20e-6
"""The step thread asks for the interpreter after every kernel; the event loop's work is in slices longer than a kernel,
which Python's own 5 ms would let pass."""


def main() -> None:
    """Runs the worker service."""
    interpreter.leave_working_directory()
    _tell_openmp()

    from signalbox.runtime import process  # noqa: PLC0415
    from worker_svc.config import WorkerSettings  # noqa: PLC0415
    from worker_svc.guardian.guarded import GuardedService  # noqa: PLC0415
    from worker_svc.ranks.place import place_of  # noqa: PLC0415

    sys.setswitchinterval(SWITCH_S)
    service = GuardedService(_load)

    def prepare(settings: WorkerSettings) -> None:
        if settings.compile_only is not None:
            # Imported here: it needs no guardian, and workers that have one do without it.
            from worker_svc.compile_only import compile_only  # noqa: PLC0415

            compile_only(settings, settings.compile_only)
            raise SystemExit
        place = place_of(os.environ, settings.num_ranks)
        if place is not None and place.rank:
            # Imported here: rank 0 and whole workers load torch behind the guardian's fork.
            from worker_svc.ranks.running import join  # noqa: PLC0415

            join(place)
            raise SystemExit
        service.prepare(settings)

    process.run("worker", WorkerSettings, service.serve, prepare)


def _tell_openmp() -> None:
    """Threads of the model wait for the next parallel region of a step for 20 to 150 us, under a quota for less, and
    then sleep: on a small machine the event loops of the services need the cores. OpenMP reads it when it is loaded, so
    before anything imports torch."""
    from signalbox.runtime.cores import spin_count  # noqa: PLC0415

    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", spin_count())


def _load() -> Serve:
    # Imported behind the guardian's fork: numpy starts threads.
    from worker_svc.server import serve  # noqa: PLC0415

    return serve


if __name__ == "__main__":
    main()
