"""The worker service with a guardian beside it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import uuid
from collections.abc import Awaitable, Callable

from signalbox.errors import StartupError
from signalbox.links.addresses import read_addresses
from signalbox.protocol.enums import WorkerExit
from worker_svc.config import WorkerSettings
from worker_svc.core.faults.unfit import UnfitError
from worker_svc.guardian import guardian
from worker_svc.guardian.ending import Ending
from worker_svc.guardian.step_mark import StepMark
from worker_svc.guardian.telling import Ward

logger = logging.getLogger(__name__)
Serve = Callable[[WorkerSettings, asyncio.Event, str, StepMark], Awaitable[None]]


class GuardedService:
    """Runs what `load` returns: it brings threads with it, so it is loaded behind the fork."""

    def __init__(self, load: Callable[[], Serve]) -> None:
        self._load = load
        self._instance = uuid.uuid4().hex
        self._mark = StepMark()
        self._exit_report: guardian.ExitReport | None = None
        self._serve: Serve | None = None

    def prepare(self, settings: WorkerSettings) -> None:
        """Starts the guardian, where the system has what it needs."""
        schedulers = read_addresses(settings.scheduler)
        ward = Ward(settings.worker_id, self._instance, schedulers, settings.upward, self._mark)
        if sys.platform == "linux":
            try:
                self._exit_report = guardian.start(ward, is_parent=os.getpid() == 1)
            except OSError as error:  # some sandboxes know no pidfd_open
                logger.warning("there is no guardian, so a crash is found out late: %s", error)
        self._serve = self._load()

    async def serve(self, settings: WorkerSettings, stop: asyncio.Event) -> None:
        """Runs the service, and says how it ended."""
        assert self._serve is not None, "it has been prepared"
        ending = Ending(WorkerExit.STOPPED, "it was told to stop")
        try:
            await self._serve(settings, stop, self._instance, self._mark)
        except BaseException as error:
            ending = ending_of(error)
            raise
        finally:
            if self._exit_report is not None:
                self._exit_report.say(ending)


def ending_of(error: BaseException) -> Ending:
    """How a service ended that ends with `error`. What nobody foresaw may be the doing of a request."""
    is_foreseen = isinstance(error, StartupError | UnfitError | KeyboardInterrupt)
    return Ending(
        WorkerExit.STOPPED if is_foreseen else WorkerExit.CRASHED, f"{type(error).__name__}: {error}"
    )
