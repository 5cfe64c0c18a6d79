"""Runs BringUp over stand-ins: `python -m tests.signalbox.cli.fake_ring LOG_DIR PORT WORKER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from signalbox.cli.ring.bring_up import BringUp, warn
from signalbox.cli.ring.ring import Ring
from signalbox.cli.ring.supervisor import Service, Supervisor
from tests.signalbox.cli import fake_services

MODEL = Path(__file__).parent


def main(log_dir: Path, port: int, worker: str) -> int:
    """Exit status of the run. Scheduler and frontend take PORT and the next one; with 0 they are never ready."""
    notes = log_dir / "notes"
    workers: dict[str, Service] = {
        "stubborn": fake_services.stubborn("worker-0"),
        "noting": fake_services.noting("worker-0", notes),
        "refusing": fake_services.refusing("worker-0", "worker: the model directory /nowhere does not exist"),
    }
    scheduler = fake_services.noting("scheduler", notes)
    frontend = fake_services.noting("frontend", notes)
    if port:
        scheduler = fake_services.serving("scheduler", notes, port)
        frontend = fake_services.http("frontend", port + 1)
    scheduler_address, http = f"127.0.0.1:{port or 9}", f"127.0.0.1:{port + 1 if port else 9}"
    # The supervisor runs a worker, but the ring has none that would be waited for.
    ring = Ring(MODEL, "fake", scheduler_address, http, "127.0.0.1:9", workers=())
    stages = [[scheduler], [workers[worker]], [frontend]]
    return asyncio.run(BringUp(ring, Supervisor(stages, log_dir, warn), proof=False).run())


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
