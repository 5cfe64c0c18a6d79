"""Makes the disk tier that the settings ask for."""

from __future__ import annotations

import logging

from signalbox.errors import StartupError
from worker_svc.config import WorkerSettings
from worker_svc.core.batch import ModelRunner
from worker_svc.disk.directory import SegmentDirectory
from worker_svc.disk.fingerprint import fingerprint_of
from worker_svc.disk.memory import BlockMemory
from worker_svc.disk.tier import DiskTier
from worker_svc.links.disk_news import Tell

logger = logging.getLogger(__name__)


def make_disk_tier(settings: WorkerSettings, runner: ModelRunner, tell: Tell) -> DiskTier | None:
    """The disk tier; None: none is asked for. A directory that cannot be read or written is no reason not to start.
    Raises StartupError with a sentence for what has none."""
    if settings.kv_disk is None:
        return None
    memory = getattr(runner, "records", None) or getattr(runner, "blocks", runner)
    if runner.info.num_state_versions or not isinstance(memory, BlockMemory):
        raise StartupError(
            "--kv-disk is for models whose blocks hold all of a request's state; this one has others"
        )
    if settings.speculative is not None and settings.speculative.startswith("draft"):
        raise StartupError("--kv-disk is not for a draft model, whose part of the blocks it would not keep")
    record_bytes = memory.record_bytes()
    try:
        fingerprint = fingerprint_of(runner.info, record_bytes)
    except ValueError as error:
        raise StartupError(f"--kv-disk cannot be used: {error}") from None
    directory = SegmentDirectory(settings.kv_disk, fingerprint, record_bytes, int(settings.kv_disk_bytes))
    logger.info("blocks are kept in %s, %d bytes at most", directory.path, directory.max_bytes)
    return DiskTier(memory, directory, tell)
