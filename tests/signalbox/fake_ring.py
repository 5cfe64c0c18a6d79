"""Runs BringUp over stand-ins: `python -m tests.signalbox.fake_ring LOG_DIR HTTP_PORT WORKER`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from signalbox.bring_up import BringUp, warn
from signalbox.ring import Ring
from signalbox.supervisor import Service, Supervisor
from tests.signalbox import fake_services

MODEL = Path(__file__).parent


def main(log_dir: Path, http_port: int, worker: str) -> int:
    """Exit status of the run. The frontend is never ready with HTTP_PORT 0."""
    notes = log_dir / "notes"
    workers: dict[str, Service] = {
        "stubborn": fake_services.stubborn("worker-0"),
        "noting": fake_services.noting("worker-0", notes),
        "refusing": fake_services.refusing("worker-0", "worker: the model directory /nowhere does not exist"),
    }
    frontend = (
        fake_services.http("frontend", http_port) if http_port else fake_services.noting("frontend", notes)
    )
    stages = [[fake_services.noting("scheduler", notes)], [workers[worker]], [frontend]]
    unused = "127.0.0.1:9"
    ring = Ring(MODEL, "fake", unused, f"127.0.0.1:{http_port or 9}", unused, (unused,))
    return asyncio.run(BringUp(ring, Supervisor(stages, log_dir, warn), proof=False).run())


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
