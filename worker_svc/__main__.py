"""`python -m worker_svc`, also installed as `worker-svc`."""

import os

# Threads of the model sleep rather than spin between parallel regions: on a small machine the event loops of the
# services need the cores. Read by OpenMP when it is loaded, so it is set before anything imports torch.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from signalbox import process
from worker_svc.config import WorkerSettings
from worker_svc.server import serve


def main() -> None:
    """Runs the worker service."""
    process.run("worker", WorkerSettings, serve)


if __name__ == "__main__":
    main()
