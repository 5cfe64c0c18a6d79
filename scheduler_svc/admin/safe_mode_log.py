"""Says in the log what the error budget does to safe mode."""

from __future__ import annotations

import logging

from scheduler_svc.core.queue.safe_mode import SafeMode

logger = logging.getLogger(__name__)


def log_safe_mode(mode: SafeMode, now: float) -> None:
    """The error budget has set safe mode, or lifted it."""
    burn = mode.burn(now)
    if mode.budget_level is None:
        logger.warning("safe mode by the error budget is lifted; it burns %.1f times as fast as it may", burn)
    else:
        logger.warning(
            "safe mode: classes below %d are suspended; the error budget burns %.1f times as fast as it may",
            mode.budget_level,
            burn,
        )
