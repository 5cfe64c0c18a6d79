"""`python -m worker_svc`, also installed as `worker-svc`."""

import os

from signalbox.runtime.cores import spin_count

# Threads of the model wait for the next parallel region of a step for 20 to 150 us, under a quota for less, and then
# sleep: on a small machine the event loops of the services need the cores. Read by OpenMP when it is loaded, so before
# anything imports torch.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", spin_count())

import sys

from signalbox.runtime import process
from worker_svc.config import WorkerSettings
from worker_svc.guardian.guarded import GuardedService, Serve
from worker_svc.ranks.place import place_of

SWITCH_S = 20e-6
"""The step thread asks for the interpreter after every kernel; the event loop's work is in slices longer than a kernel,
which Python's own 5 ms would let pass."""


def main() -> None:
    """Runs the worker service."""
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


def _load() -> Serve:
    # Imported behind the guardian's fork: numpy starts threads.
    from worker_svc.server import serve  # noqa: PLC0415

    return serve


if __name__ == "__main__":
    main()
