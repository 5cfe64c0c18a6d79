"""Which processes make a ring on one machine, and with which flags."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from signalbox.cli.ring.supervisor import Service, dialable
from signalbox.runtime.config import flag_of
from signalbox.runtime.start.interpreter import module_command

DEMO_MODEL = Path(__file__).parents[2] / "demo_model"
GRPC_MEMORY_BYTES = 1 << 30
"""As much as the pods of k8s/base may have. What is above it is a stranger's doing."""


@dataclass(frozen=True)
class Ring:
    """A scheduler, perhaps a second one that stands by, some frontends on the same ports, some workers. Each `*_flags`
    goes to its service as it is."""

    model: Path
    served_model_name: str
    scheduler: str
    """host:port, as the other addresses."""
    http: str
    grpc: str
    workers: tuple[str, ...]
    num_frontends: int = 1
    grpc_health: tuple[str, ...] = ()
    """host:port of the probes of frontends that serve gRPC alone, one for each; the `num_frontends` serve HTTP alone
    then. Empty: they serve both."""
    standby: str | None = None
    """host:port of the second scheduler; None: there is none."""
    lease: Path | None = None
    """File that the scheduler that leads has locked; to be set when there is a second one."""
    bans: Path | None = None
    """Directory in which frontends that serve gRPC leave whom they have banned to the process after them; None: they
    leave nothing."""
    scheduler_flags: tuple[str, ...] = ()
    worker_flags: tuple[str, ...] = ()
    further_names: tuple[str, ...] = ()
    """Other names of the model, that clients may use."""
    restarts_workers: bool = False
    """One that ends is started again; else it is the end of all."""
    frontend_flags: tuple[str, ...] = ()
    first_metrics: str | None = None
    """host:port of the first service's metrics; the others take the next ports. None: as the flags say."""

    @property
    def has_tokenizer(self) -> bool:
        """Without one the frontend takes and gives token ids only."""
        return (self.model / "tokenizer.json").exists()

    @property
    def has_public_tls(self) -> bool:
        """Whether the frontends show clients a certificate."""
        return self._says("public_tls_cert")

    @property
    def asks_clients(self) -> bool:
        """Whether clients have to show the frontends a certificate."""
        return self._says("public_tls_ca")

    def _says(self, setting: str) -> bool:
        """Whether frontends are told a setting, by flags or environment."""
        flag = f"--{setting.replace('_', '-')}="
        told = any(each.startswith(flag) for each in self.frontend_flags)
        return told or f"SIGNALBOX_FRONTEND_{setting.upper()}" in os.environ

    @property
    def chats(self) -> bool:
        """Whether the model has a chat template, and more to say in a chat than the demo model."""
        if self.model == DEMO_MODEL or not self.has_tokenizer:
            return False
        config = self.model / "tokenizer_config.json"
        # A look, not a reading: the frontend is who says what is wrong with the file.
        return (self.model / "chat_template.jinja").exists() or (
            config.exists() and b'"chat_template"' in config.read_bytes()
        )

    @property
    def schedulers(self) -> dict[str, str]:
        """Names of the scheduler processes, and their addresses."""
        if self.standby is None:
            return {"scheduler": self.scheduler}
        return {"scheduler-0": self.scheduler, "scheduler-1": self.standby}

    @property
    def scheduler_list(self) -> str:
        """What the others are given, to find the one that leads."""
        return self.scheduler if self.standby is None else ",".join(map(dialable, self.schedulers.values()))

    @property
    def frontend_names(self) -> tuple[str, ...]:
        """Names of the frontend processes; each tells its own at /ready when there are several."""
        if self.num_frontends == 1:
            return ("frontend",)
        return tuple(f"frontend-{index}" for index in range(self.num_frontends))

    @property
    def grpc_probes(self) -> dict[str, str]:
        """Readiness address of each frontend process that serves gRPC alone, by its name."""
        if len(self.grpc_health) == 1:
            return {"frontend-grpc": self.grpc_health[0]}
        return {f"frontend-grpc-{index}": at for index, at in enumerate(self.grpc_health)}

    @property
    def metrics(self) -> dict[str, str]:
        """host:port of each service's metrics: schedulers, workers, frontends."""
        if self.first_metrics is None:
            return {}
        workers = [worker_name(index) for index in range(len(self.workers))]
        host, _, port = self.first_metrics.rpartition(":")
        names = (*self.schedulers, *workers, *self.frontend_names, *self.grpc_probes)
        return {name: f"{host}:{int(port) + index}" for index, name in enumerate(names)}

    def stages(self) -> list[list[Service]]:
        """The services in the order of starting; a later stage dials an earlier one."""
        metrics = {name: flags(metrics=at) for name, at in self.metrics.items()}
        grpc = "" if self.grpc_probes else self.grpc
        frontends = [self._frontend(name, metrics, http=self.http, grpc=grpc) for name in self.frontend_names]
        frontends += [
            self._frontend(
                name,
                metrics,
                http="",
                grpc=self.grpc,
                health=at,
                memory_limit_bytes=self._grpc_memory,
                bans_file=None if self.bans is None else self.bans / f"{name}.bans",
            )
            for name, at in self.grpc_probes.items()
        ]
        workers = [
            _service(
                worker_name(index),
                "worker_svc",
                flags(scheduler=self.scheduler_list, listen=address, worker_id=worker_name(index)),
                flags(model=self.model, served_model_name=self.served_model_name),
                metrics.get(worker_name(index), ()),
                self.worker_flags,
                restarts=self.restarts_workers,
            )
            for index, address in enumerate(self.workers)
        ]
        return [self._schedulers(metrics), workers, frontends]

    def _frontend(self, name: str, metrics: Mapping[str, tuple[str, ...]], **own: object) -> Service:
        """A frontend process; own: settings that tell it from the others."""
        return _service(
            name,
            "frontend_svc",
            flags(scheduler=self.scheduler_list, **own),
            flags(model=self.model if self.has_tokenizer else None),
            flags(served_model_name=",".join([self.served_model_name, *self.further_names])),
            (f"--name={name}", "--reuse-port") if self.num_frontends > 1 else (),
            metrics.get(name, ()),
            self.frontend_flags,
        )

    @property
    def _grpc_memory(self) -> int | None:
        """Most bytes of a process that serves gRPC to strangers; None: it is told otherwise."""
        return None if self._says("memory_limit_bytes") else GRPC_MEMORY_BYTES

    def _schedulers(self, metrics: Mapping[str, tuple[str, ...]]) -> list[Service]:
        if self.standby is None:
            own = (flags(listen=self.scheduler), metrics.get("scheduler", ()), self.scheduler_flags)
            return [_service("scheduler", "scheduler_svc", *own)]
        assert self.lease is not None
        lease = f"file:{self.lease}"
        return [
            _service(
                name,
                "scheduler_svc",
                flags(listen=address, advertise=dialable(address), lease=lease),
                metrics.get(name, ()),
                self.scheduler_flags,
                group="schedulers",
            )
            for name, address in self.schedulers.items()
        ]


def flags(**settings: object) -> tuple[str, ...]:
    """`num_blocks=8` becomes `--num-blocks=8`; None leaves a setting to its service."""
    return tuple(f"{flag_of(name)}={value}" for name, value in settings.items() if value is not None)


def worker_name(index: int) -> str:
    """Stable name of a worker on this machine."""
    return f"worker-{index}"


def _service(
    name: str, package: str, *settings: tuple[str, ...], group: str = "", restarts: bool = False
) -> Service:
    arguments = (argument for some in settings for argument in some)
    return Service(name, tuple(module_command(package, *arguments)), group, restarts)
