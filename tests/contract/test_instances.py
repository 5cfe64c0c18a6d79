"""Every start of a service is another instance."""

from __future__ import annotations

import asyncio
import os
from uuid import UUID

import pytest

from frontend_svc.config import FrontendSettings
from frontend_svc.services import make_services
from scheduler_svc.config import SchedulerSettings
from scheduler_svc.server import SchedulerProcess
from worker_svc.config import WorkerSettings
from worker_svc.guardian.guarded import GuardedService
from worker_svc.guardian.step_mark import StepMark


async def start_worker() -> str:
    """The instance that a worker process is told to be."""
    instances = []

    async def serve(settings: WorkerSettings, stop: asyncio.Event, instance: str, mark: StepMark) -> None:
        instances.append(instance)

    service = GuardedService(lambda: serve)
    service.prepare(WorkerSettings())
    await service.serve(WorkerSettings(), asyncio.Event())
    return instances[0]


async def test_an_instance_is_a_uuid_of_one_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """I5: of a frontend, a scheduler and a worker, with the same settings."""

    def refuse(pid: int) -> int:
        raise OSError("this test has no guardian")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    instances = []
    for _ in range(2):
        instances.append(make_services(FrontendSettings()).instance)
        instances.append(SchedulerProcess(SchedulerSettings()).instance)
        instances.append(await start_worker())
    assert len({UUID(instance) for instance in instances}) == len(instances)
