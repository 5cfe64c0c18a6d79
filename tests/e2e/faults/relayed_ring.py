"""A scheduler, a relay, two simulated workers behind it and a frontend, each a process that a test may kill and start
again."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

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
NOWHERE_ELSE: Mapping[str, str] = MappingProxyType({})
STEP_MS = 10


class RelayedRing:
    """Names of services are `scheduler`, `relay`, `worker-0`, `worker-1`, `frontend`."""

    def __init__(
        self,
        log_dir: Path,
        certificates: Path | None = None,
        fronts: Mapping[str, str] = NOWHERE_ELSE,
        *,
        asks_all: bool = False,
    ) -> None:
        """certificates: folder of `signalbox certs`; None: plaintext. asks_all: clients and readers of metrics have to
        show one, too. fronts: addresses at which the others look for
        services, by name; `{own}` in one is the service's own, as is that of those that are not there. Where the
        scheduler has one worker-1 looks for it there, too, and has no relay."""
        addresses = [f"127.0.0.1:{port}" for port in free_ports(11)]
        self.scheduler, self.relay, self.grpc, self.http = addresses[:4]
        names = ("scheduler", "relay", *WORKERS)
        self.listening = dict(zip(names, (self.scheduler, self.relay, *addresses[4:6]), strict=True))
        """Where those with links between services really are."""
        self.metrics = dict(zip((*names, "frontend"), addresses[6:], strict=True))
        self._certificates, self._asks_all = certificates, asks_all
        self._log_dir = log_dir
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        at = {name: fronts.get(name, "{own}").format(own=own) for name, own in self.listening.items()}
        dialled = at["scheduler"]
        worker = {"model": MODEL, "served_model_name": "demo", "runner": "sim", "sim_base_ms": STEP_MS}
        worker |= {"block_size": 4, "num_blocks": 4096, "scheduler": at["relay"]}
        self._commands = {
            "scheduler": ("scheduler_svc", flags(listen=self.scheduler)),
            "relay": (
                "worker_svc.relay",
                flags(listen=self.relay, scheduler=dialled),
            ),
            "frontend": (
                "frontend_svc",
                flags(
                    scheduler=dialled,
                    grpc=self.grpc,
                    http=self.http,
                    model=MODEL,
                    served_model_name="demo",
                ),
            ),
        }
        direct = {WORKERS[1]} if "scheduler" in fronts else set()
        for name in WORKERS:
            own = worker | ({"scheduler": dialled} if name in direct else {})
            own |= {"worker_id": name, "listen": self.listening[name], "advertise": at[name]}
            self._commands[name] = ("worker_svc", flags(**own))

        for name, (module, options) in self._commands.items():
            behind = ("--behind-relay",) if name in WORKERS and name not in direct else ()
            own = self._tls_flags(name.partition("-")[0], certificates) + behind if certificates else ()
            metrics = flags(metrics=self.metrics[name])
            self._commands[name] = (module, (*options, *metrics, *own))

    def _tls_flags(self, role: str, certificates: Path) -> tuple[str, ...]:
        cert, key, ca = files_of(certificates, role)
        told = flags(tls_cert=cert, tls_key=key, tls_ca=ca)
        if self._asks_all:
            told += flags(metrics_tls_ca=ca)
            if role == "frontend":
                told += flags(public_tls_cert=cert, public_tls_key=key, public_tls_ca=ca)
        return told

    def client(self) -> Client:
        """Of the frontend; an operator, where certificates are asked for."""
        if not self._asks_all or self._certificates is None:
            return Client(self.grpc)
        cert, key, ca = files_of(self._certificates, Role.OPERATOR.value)
        return Client(f"grpcs://{self.grpc}", ca=ca, cert=cert, key=key)

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
        async with asyncio.timeout(START_TIMEOUT_S), self.client() as client:
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
