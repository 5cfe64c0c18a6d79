"""A collector, and rings whose services send to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import RunningRing, launch
from tests.ports import free_ports
from tests.telemetry.receiver import Receiver

SIM = ("--no-proof", "--runner", "sim", "--block-size", "4", "--num-blocks", "40")
"""Short of blocks for more than a few requests at once."""
LaunchTraced = Callable[..., RunningRing]


@pytest.fixture(scope="package")
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """The variables that a ring inherits; other OTEL_* ones are taken away."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("OTEL_")]:
            patch.delenv(name)
        for name, value in values.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="package")
def launch_traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LaunchTraced]:
    """Starts a ring whose traces go to an endpoint (empty: none), with options of `signalbox up`."""
    with ExitStack() as stack:

        def start(endpoint: str, *options: str) -> RunningRing:
            directory: Path = tmp_path_factory.mktemp("traced")
            with environment(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_BSP_SCHEDULE_DELAY="100"):
                ring = launch(directory, *SIM, *options)
            stack.callback(lambda: ring.process.poll() is None and ring.stop())
            ring.wait_for("signalbox is up")
            return ring

        yield start


class Measured:
    """A ring and where its services serve their metrics."""

    def __init__(self, ring: RunningRing, scheduler: str, worker: str) -> None:
        self.ring, self.scheduler, self.worker = ring, scheduler, worker


@pytest.fixture(scope="package")
def measured(launch_traced: LaunchTraced, receiver: Receiver) -> Measured:
    """The ring that most tests share: traced, measured, logging JSON, 2 ms per step."""
    scheduler, worker = (f"127.0.0.1:{port}" for port in free_ports(2))
    options = ("--scheduler-set", f"metrics={scheduler}", "--worker-set", f"metrics={worker}")
    ring = launch_traced(receiver.endpoint, *options, "--worker-set", "sim-base-ms=2", "--log-format", "json")
    return Measured(ring, scheduler, worker)
