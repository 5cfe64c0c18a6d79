"""Rings under test: every service a process of its own, restartable one by one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx

from signalbox.cli.admin_client import admin_client
from signalbox.cli.ring.readiness import http_get
from signalbox.cli.ring.ring import DEMO_MODEL, flags
from signalbox.links import rpc
from signalbox.links.tls.identity import take_on
from signalbox.links.tls.roles import Role
from signalbox.protocol.enums import WorkerRole
from signalbox.v1 import admin_pb2, admin_pb2_grpc
from tests.chaos.clock import Clock
from tests.chaos.proxy import Connections, Proxy, SortingProxy, dials_from
from tests.chaos.service import Service
from tests.ports import free_ports
from tests.signalbox.links.tls.certificates import Certificates

READY_TIMEOUT_S = 400.0
POLL_S = 0.05
STATUS_TIMEOUT_S = 2.0
LOSSES = re.compile(r'signalbox_frontend_losses_total\{.*cause="(\w+)".*\}')
PEERS = "worker-worker"
PAIRS = ("frontend-scheduler", "worker-scheduler", "frontend-worker", PEERS)


@dataclass(frozen=True)
class Shape:
    """What a ring consists of."""

    runner: str = "torch"
    """torch: the demo model in float32; sim: tokens are hashes."""
    model: str = str(DEMO_MODEL)
    """Served as `demo`."""
    num_blocks: int = 2560
    drafts: bool = False
    """Workers draft by n-grams."""
    num_workers: int = 2
    num_frontends: int = 1
    standby: bool = False
    """A second scheduler waits for the file lock of the first."""
    proxied: bool = False
    """All links between services go through proxies."""
    tls: bool = False
    """Links between services are mutual TLS; clients and readers of metrics come in plaintext."""
    clocks: bool = False
    """Each service has a wall clock that can be set."""
    scheduler_flags: tuple[str, ...] = ()
    worker_flags: tuple[str, ...] = ()
    frontend_flags: tuple[str, ...] = ()
    """Of flags, `{folder}` is the ring's own directory."""

    @property
    def schedulers(self) -> tuple[str, ...]:
        """Names of the processes."""
        return ("scheduler", "standby") if self.standby else ("scheduler",)

    @property
    def workers(self) -> tuple[str, ...]:
        """Names of the processes."""
        return tuple(f"worker-{index}" for index in range(self.num_workers))

    @property
    def frontends(self) -> tuple[str, ...]:
        """Names of the processes."""
        return tuple(f"frontend-{index}" for index in range(self.num_frontends))

    @property
    def by_kind(self) -> dict[str, tuple[str, ...]]:
        """Names of the processes by what they are."""
        return {"scheduler": self.schedulers, "worker": self.workers, "frontend": self.frontends}


@dataclass(frozen=True)
class Frontend:
    """Where clients reach one."""

    name: str
    http: str
    grpc: str


@dataclass(frozen=True)
class FrontendDeath:
    """A frontend was killed: its streams of that moment end, which is nobody's loss. Or it left when its streams had
    ended: whoever connected at that moment got no answer, and tries again."""

    name: str
    at: float
    was_planned: bool = False


class Ring:
    """The services of a shape by name, and the proxies between them by pair."""

    def __init__(self, shape: Shape, folder: Path, tree: Path) -> None:
        self.shape = shape
        self.folder = folder
        self.tree = tree
        self.deaths: list[FrontendDeath] = []
        self.proxies: dict[str, list[Connections]] = {pair: [] for pair in PAIRS}
        self._listeners: list[Proxy] = []
        self.services: dict[str, Service] = {}
        self.metrics: dict[str, str] = {}
        """host:port of /metrics by service."""
        self.frontends: list[Frontend] = []
        self.clocks: dict[str, Clock] = {}
        """By service, where they can be set."""
        self._certificates = Certificates.make(folder / "certificates") if shape.tls else None
        self._ports = iter(free_ports(40))
        self._schedulers = {name: self._address() for name in shape.schedulers}
        for name in shape.schedulers:
            self._add_scheduler(name)
        for name in shape.workers:
            self._add_worker(name)
        for name in shape.frontends:
            self._add_frontend(name)

    # ---- one service

    def start(self, *names: str) -> None:
        """Starts services; returns at once."""
        for name in names:
            self.services[name].start()

    async def kill(self, name: str) -> None:
        """SIGKILL."""
        if name in self.shape.frontends:
            self.deaths.append(FrontendDeath(name, time.monotonic()))
        await self.services[name].kill()

    async def restart(self, name: str, *settings: str) -> None:
        """SIGTERM, and a new process, with these flags after those of the shape; returns when it is ready."""
        await self.services[name].stop()
        self.services[name].settings = settings
        if name in self.shape.frontends:
            self.deaths.append(FrontendDeath(name, time.monotonic(), was_planned=True))
        self.start(name)
        await self.ready(name)

    async def relieve(self, name: str) -> None:
        """A new process beside the old one, on the same port; the old one leaves when its streams have ended."""
        self.services[name].relieve()
        await self.ready(name)

    async def ready(self, *names: str) -> None:
        """Returns when these services do their work."""
        async with asyncio.timeout(READY_TIMEOUT_S):
            await asyncio.gather(*map(self._one_ready, names))

    async def _one_ready(self, name: str) -> None:
        while not await self._is_ready(name):
            assert self.services[name].runs, f"{name} has ended: {self.services[name].log}"
            await asyncio.sleep(POLL_S)

    async def _is_ready(self, name: str) -> bool:
        if name in self.shape.workers:
            return name in await self.attached()
        if name in self.shape.frontends:
            return await self._has_heard_all(next(f for f in self.frontends if f.name == name))
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(*self._schedulers[name].split(":"))
            writer.close()
            return True
        return False

    async def _has_heard_all(self, frontend: Frontend) -> bool:
        return (await http_get(frontend.http, "/ready"))[0] == 200

    # ---- all of them

    async def attached(self) -> set[str]:
        """Workers that have a link to the scheduler that leads."""
        return {worker.worker_id for worker in (await self.status()).workers if worker.attached}

    async def status(self) -> admin_pb2.GetStatusResponse:
        """Of the scheduler that leads; empty when none answers."""
        found = await asyncio.gather(*map(_status_of, self._schedulers.values()))
        return max(found, key=lambda status: len(status.workers))

    async def num_requests(self) -> int:
        """Waiting, running or preempted, as the scheduler has it."""
        status = await self.status()
        return status.num_waiting + sum(w.num_running + w.num_preempted for w in status.workers)

    @property
    def scheduler_address(self) -> str:
        """host:port of the first scheduler."""
        return self._schedulers[self.shape.schedulers[0]]

    async def num_held(self, worker: str) -> int:
        """Requests that a worker holds, waiting ones of its own included."""
        return sum(each.num_requests for each in (await self.status()).workers if each.worker_id == worker)

    async def drain(self, worker: str, *, resume: bool = False) -> None:
        """Has the scheduler place nothing there, or again."""
        async with rpc.channel(self.scheduler_address, Role.SCHEDULER) as channel:
            stub: Any = admin_pb2_grpc.AdminServiceStub(channel)
            request = admin_pb2.DrainWorkerRequest(worker_id=worker, resume=resume)
            await stub.DrainWorker(request, timeout=STATUS_TIMEOUT_S)

    async def set_role(self, worker: str, role: WorkerRole) -> None:
        """Says what a worker is there for."""
        async with admin_client(self.scheduler_address) as link:
            await link.set_role(worker, role)

    async def leader(self) -> str:
        """Name of the scheduler that has the workers."""
        for name, address in self._schedulers.items():
            if any(worker.attached for worker in (await _status_of(address)).workers):
                return name
        raise AssertionError("nobody leads")

    async def open(self) -> None:
        """Starts everything and returns when all of it is ready."""
        take_on(self._certificates.identity(Role.OPERATOR) if self._certificates else None)
        for proxy in self._listeners:
            await proxy.start()
        first, *others = self.shape.schedulers
        self.start(first)
        await self.ready(first)
        self.start(*others, *self.shape.workers, *self.shape.frontends)
        await self.ready(*self.shape.workers, *self.shape.frontends)

    async def close(self) -> None:
        """Ends everything, by force."""
        await asyncio.gather(*(service.kill() for service in self.services.values()))
        for proxy in self._listeners:
            await proxy.close()
        take_on(None)

    # ---- flags

    def _address(self) -> str:
        return f"127.0.0.1:{next(self._ports)}"

    def _add(self, name: str, module: str, *groups: Iterable[str]) -> None:
        role = Role(module.removesuffix("_svc"))
        given = [*itertools.chain.from_iterable(groups), *self._secured(role)]
        arguments = [argument.replace("{folder}", str(self.folder)) for argument in given]
        if self.shape.clocks:
            self.clocks[name] = Clock(self.folder, name)
        environment = self.clocks[name].environment if self.shape.clocks else {}
        log = self.folder / f"{name}.log"
        self.services[name] = Service(name, module, arguments, self.tree, log, environment)

    def _secured(self, role: Role) -> tuple[str, ...]:
        if self._certificates is None:
            return ()
        cert, key, ca = self._certificates.files(role)
        plain = () if role is Role.FRONTEND else ("--no-metrics-tls",)
        return (*flags(tls_cert=cert, tls_key=key, tls_ca=ca), *plain)

    def _measured(self, name: str) -> tuple[str, ...]:
        self.metrics[name] = self._address()
        return flags(metrics=self.metrics[name])

    def _add_scheduler(self, name: str) -> None:
        shape = self.shape
        drafts = ("--num-speculative-tokens=4",) if shape.drafts else ()
        lease = flags(lease=f"file:{self.folder}/lease" if shape.standby else None)
        listen = flags(listen=self._schedulers[name])
        self._add(name, "scheduler_svc", listen, self._measured(name), drafts, lease, shape.scheduler_flags)

    def _add_worker(self, name: str) -> None:
        shape, listen = self.shape, self._address()
        scheduler = self._reached("worker-scheduler", self._schedulers.values())
        where = flags(scheduler=scheduler, listen=listen, worker_id=name, model=shape.model)
        advertise = flags(advertise=self._reached("frontend-worker", [listen])) if shape.proxied else ()
        sort = flags(runner=shape.runner, served_model_name="demo")
        if shape.runner == "torch":
            sort += flags(dtype="float32", threads=1, num_blocks=shape.num_blocks)
            sort += ("--speculative=ngram:4",) if shape.drafts else ()
        elif shape.drafts:
            sort += flags(sim_max_draft_tokens=4)
        self._add(name, "worker_svc", where, advertise, sort, self._measured(name), shape.worker_flags)

    def _add_frontend(self, name: str) -> None:
        frontend = Frontend(name, self._address(), self._address())
        self.frontends.append(frontend)
        self.metrics[name] = frontend.http
        scheduler = self._reached("frontend-scheduler", self._schedulers.values())
        where = flags(scheduler=scheduler, http=frontend.http, grpc=frontend.grpc)
        sort = flags(model=self.shape.model, served_model_name="demo", name=name, drain_s=120)
        sort += ("--no-page",)
        backlog = flags(max_backlog_tokens=32)  # a slow reader is to be paused
        self._add(name, "frontend_svc", where, sort, backlog, self.shape.frontend_flags)

    def _reached(self, pair: str, addresses: Iterable[str]) -> str:
        """Where others dial these, through proxies of the pair if the shape has them."""
        return ",".join(self._proxied(pair, address) for address in addresses)

    def _proxied(self, pair: str, address: str) -> str:
        """Workers and frontends dial a worker at one address, and are told apart by who has the connection."""
        if not self.shape.proxied:
            return address
        port, target = next(self._ports), int(address.rpartition(":")[2])
        proxy = Proxy(port, target)
        if pair == "frontend-worker":
            proxy = sorting = SortingProxy(port, target, self._is_worker)
            self.proxies[PEERS].append(sorting.other)
        self.proxies[pair].append(proxy)
        self._listeners.append(proxy)
        return f"127.0.0.1:{port}"

    def _is_worker(self, port: int) -> bool:
        running = [self.services[name] for name in self.shape.workers if self.services[name].runs]
        return dials_from([service.pid for service in running], port)


async def _status_of(scheduler: str) -> admin_pb2.GetStatusResponse:
    """Empty when it does not answer. (By hand, since a scheduler of another version may not know who leads.)"""
    async with rpc.channel(scheduler, Role.SCHEDULER) as channel:
        stub: Any = admin_pb2_grpc.AdminServiceStub(channel)
        with contextlib.suppress(grpc.aio.AioRpcError):
            status = await stub.GetStatus(admin_pb2.GetStatusRequest(), timeout=STATUS_TIMEOUT_S)
            assert isinstance(status, admin_pb2.GetStatusResponse)
            return status
    return admin_pb2.GetStatusResponse()


@contextlib.asynccontextmanager
async def open_ring(shape: Shape, tree: Path) -> AsyncIterator[Ring]:
    """A ready ring for the time of the block. Its logs are kept when the block fails."""
    folder = Path(tempfile.mkdtemp(prefix="signalbox-chaos-"))
    ring = Ring(shape, folder, tree)
    try:
        await ring.open()
        yield ring
    except BaseException:
        print(f"logs are in {folder}", flush=True)
        raise
    else:
        if not (folder / "keep").exists():
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        await ring.close()


def keep_logs(ring: Ring) -> None:
    """The folder stays when the ring ends."""
    (ring.folder / "keep").touch()


async def scrape(address: str) -> dict[str, float]:
    """Samples of /metrics by name with labels, as they stand there; empty when nobody answers."""
    try:
        async with httpx.AsyncClient() as client:
            text = (await client.get(f"http://{address}/metrics", timeout=5)).text
    except httpx.HTTPError:
        return {}
    lines = (line.rpartition(" ") for line in text.splitlines() if line and line[0] != "#")
    return {name: float(value) for name, _, value in lines}


async def count_losses(ring: Ring) -> Counter[str]:
    """Attempts that were lost so far, by cause, as the frontends count them."""
    counts: Counter[str] = Counter()
    for name in ring.shape.frontends:
        for sample, value in (await scrape(ring.metrics[name])).items():
            if found := LOSSES.fullmatch(sample):
                counts[found[1]] += int(value)
    return counts


def chance(seed: int) -> random.Random:
    """Choices of one repetition of a fault."""
    return random.Random(seed)
