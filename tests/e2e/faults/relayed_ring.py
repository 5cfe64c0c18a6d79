"""A scheduler, a relay, two simulated workers behind it and a frontend, each a process that a test may kill and start
again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import grpc

from signalbox.cli.identity import files_of
from signalbox.cli.ring.ring import flags
from signalbox.client import Client
from signalbox.errors import SignalboxError
from signalbox.links import rpc
from signalbox.links.tls.roles import Role
from signalbox.v1 import admin_pb2, admin_pb2_grpc
from tests.e2e.conftest import MODEL, START_TIMEOUT_S
from tests.ports import free_ports

WORKERS = ("worker-0", "worker-1")
STEP_MS = 10


class RelayedRing:
    """Names of services are `scheduler`, `relay`, `worker-0`, `worker-1`, `frontend`."""

    def __init__(self, log_dir: Path, certificates: Path | None = None, dialled: str = "") -> None:
        """certificates: folder of `signalbox certs`; None: plaintext. dialled: address at which the others look for the
        scheduler, and worker-1 does, too, which has no relay then; empty: its own."""
        addresses = [f"127.0.0.1:{port}" for port in free_ports(7)]
        self.scheduler, self.relay, self.grpc, http, self.relay_metrics = addresses[:5]
        self._log_dir = log_dir
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        worker = {"model": MODEL, "served_model_name": "demo", "runner": "sim", "sim_base_ms": STEP_MS}
        worker |= {"block_size": 4, "num_blocks": 1024, "scheduler": self.relay}
        self._commands = {
            "scheduler": ("scheduler_svc", flags(listen=self.scheduler)),
            "relay": (
                "worker_svc.relay",
                flags(listen=self.relay, scheduler=dialled or self.scheduler, metrics=self.relay_metrics),
            ),
            "frontend": (
                "frontend_svc",
                flags(
                    scheduler=dialled or self.scheduler,
                    grpc=self.grpc,
                    http=http,
                    model=MODEL,
                    served_model_name="demo",
                ),
            ),
        }
        for name, address in zip(WORKERS, addresses[5:], strict=True):
            if name == WORKERS[1] and dialled:
                worker["scheduler"] = dialled
            self._commands[name] = ("worker_svc", flags(**worker, worker_id=name, listen=address))

        if certificates is not None:
            for name, (module, options) in self._commands.items():
                role = name.partition("-")[0]
                cert, key, ca = files_of(certificates, role)
                own = flags(tls_cert=cert, tls_key=key, tls_ca=ca)
                self._commands[name] = (
                    module,
                    (*options, *own, *(["--behind-relay"] if role == "worker" else [])),
                )

    def start(self, name: str) -> None:
        """Starts a service; the log of an earlier one of the name goes on."""
        module, options = self._commands[name]
        with (self._log_dir / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", module, *options], stdout=log, stderr=log
            )

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self._processes[name].kill()
        self._processes[name].wait()

    def processes(self) -> dict[str, subprocess.Popen[bytes]]:
        """Those that were started last, by name."""
        return self._processes

    def log(self, name: str) -> str:
        """All that the service has said so far."""
        return (self._log_dir / f"{name}.log").read_text()

    async def ready(self) -> None:
        """Until the frontend offers the model on both workers."""
        async with asyncio.timeout(START_TIMEOUT_S), Client(self.grpc) as client:
            while await _num_workers(client) != len(WORKERS):
                await asyncio.sleep(0.05)

    async def workers(self) -> dict[str, admin_pb2.WorkerStatus]:
        """By name, as the scheduler sees them, also one that is only starting."""
        async with rpc.channel(self.scheduler, Role.SCHEDULER) as channel:
            stub = admin_pb2_grpc.AdminServiceStub(channel)
            request = admin_pb2.GetStatusRequest()
            status = await stub.GetStatus(request, timeout=START_TIMEOUT_S, wait_for_ready=True)
        return {worker.worker_id: worker for worker in status.workers}

    async def attached(self, *names: str) -> None:
        """Until exactly these workers have a link to the scheduler."""
        async with asyncio.timeout(START_TIMEOUT_S):
            while {name for name, worker in (await self.workers()).items() if worker.attached} != set(names):
                await asyncio.sleep(0.02)

    def stop(self) -> dict[str, int]:
        """Asks all to end; their exit statuses."""
        for process in self._processes.values():
            process.terminate()
        return {name: process.wait(30) for name, process in self._processes.items()}


async def _num_workers(client: Client) -> int:
    try:
        return sum(model.num_workers for model in await client.list_models(timeout_s=2))
    except (SignalboxError, grpc.aio.AioRpcError):
        return 0
