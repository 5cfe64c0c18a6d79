"""Real processes for contract tests: the services of a ring one by one, and a router before them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from signalbox.cli.ring.ring import DEMO_MODEL, Ring
from tests.ports import free_ports

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 20


def until(condition: Callable[[], object], what: str, timeout_s: float = 20) -> None:
    """Returns when `condition` holds; fails with `what` when it does not in time."""
    give_up = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up, what
        time.sleep(0.05)


def status_of(url: str) -> int:
    """Of a GET; 0: nobody answers."""
    try:
        return httpx.get(url, timeout=5).status_code
    except httpx.TransportError:
        return 0


class Process:
    """A program and its log; it runs in a session of its own, so that stopping it reaches its children."""

    def __init__(self, argv: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                argv,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(os.environ) | dict(environment or {}),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    def wait(self, timeout_s: float) -> int:
        """Its exit status. Fails with what it printed when it does not end in time."""
        until(lambda: self._popen.poll() is not None, f"it does not end: {self.log}", timeout_s)
        return int(self._popen.returncode)

    def stop(self) -> None:
        """Ends it, by force when asking does not help."""
        if self._popen.poll() is None:
            os.killpg(self._popen.pid, signal.SIGTERM)
            try:
                self._popen.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._popen.pid, signal.SIGKILL)
                self._popen.wait()

    def wait_for(self, url: str) -> None:
        """Returns when a GET is answered with 200."""

        def answers() -> bool:
            assert self._popen.poll() is None, self.log
            return status_of(url) == 200

        until(answers, f"{url} is not answered", START_TIMEOUT_S)

    @property
    def log(self) -> str:
        """What it has printed."""
        return self._log.read_text(errors="replace")


class ServiceRing:
    """Scheduler, frontend and one worker, which can be taken away and come back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._scheduler, worker, http, self.grpc = (f"127.0.0.1:{port}" for port in free_ports(4))
        self.url = f"http://{http}"
        ring = Ring(
            model=DEMO_MODEL,
            served_model_name="demo",
            scheduler=self._scheduler,
            http=http,
            grpc=self.grpc,
            workers=(worker,),
            worker_flags=("--threads=1", "--num-blocks=512"),
            frontend_flags=("--replay-limit=0", "--vllm-faces"),
        )
        self._services = {service.name: service for stage in ring.stages() for service in stage}
        self._processes = {name: self._start(name) for name in self._services}
        try:
            self._processes["frontend"].wait_for(f"{self.url}/ready")
        except BaseException:
            self.stop()
            raise

    def _start(self, name: str) -> Process:
        return Process(self._services[name].argv, self._folder / f"{name}.log")

    def stop_worker(self) -> None:
        """Returns when the frontend knows."""
        self._processes["worker-0"].stop()
        until(lambda: status_of(f"{self.url}/ready") == 503, "the frontend is still ready")

    def start_worker(self) -> None:
        """Returns when the frontend knows."""
        self._processes["worker-0"] = self._start("worker-0")
        self._processes["frontend"].wait_for(f"{self.url}/ready")

    def stop(self) -> None:
        """Ends all of them."""
        for name in ("frontend", "worker-0", "scheduler"):
            self._processes[name].stop()

    def ended(self, outcome: str) -> int:
        """Requests of the frontend that ended so, up to now."""
        lines = httpx.get(f"{self.url}/metrics").text.splitlines()
        ended = [line for line in lines if line.startswith("signalbox_frontend_requests_total{")]
        return sum(int(float(line.split()[-1])) for line in ended if f'outcome="{outcome}"' in line)

    def num_running(self) -> int:
        """Requests on the worker, as the scheduler has it."""
        command = [sys.executable, "-m", "signalbox", "status", "--scheduler", self._scheduler, "--json"]
        text = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
        status: dict[str, Any] = json.loads(text)
        return sum(worker["num_running"] for worker in status["workers"])
