"""Keeps full collections of garbage short: each walks over all objects of the process, in one piece."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from typing import Any

LONG_S = 0.02
"""Processor time of a full collection after which what it has found alive is not walked over again."""
SWEEP_EVERY_S = 60.0


class Collector:
    """Sets aside what a long full collection has found alive (`gc.freeze`): the next one walks over what came later.

    Objects that were set aside are freed as ever when nobody refers to them. Those that refer to each other, and that
    only a collection frees, stay until the next sweep; requests that end as usual leave none."""

    def __init__(self) -> None:
        self._began = self._swept_at = 0.0
        self._num_set_aside = 0
        """Times that something was since the last sweep."""

    @property
    def has_set_aside(self) -> bool:
        """Whether a sweep could find something."""
        return self._num_set_aside > 0

    def start(self) -> None:
        """From now on, until `stop`."""
        gc.callbacks.append(self._heard)

    def stop(self) -> None:
        """No-op when it was not started."""
        if self._heard in gc.callbacks:
            gc.callbacks.remove(self._heard)

    def sweep(self, now: float) -> None:
        """Walks over all objects once, if some were set aside and the last sweep is SWEEP_EVERY_S ago. To be called a
        few times a minute while there is little else to do."""
        if self.has_set_aside and now - self._swept_at >= SWEEP_EVERY_S:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._swept_at, self._num_set_aside = now, 0

    def _heard(self, phase: str, info: Mapping[str, Any]) -> None:
        if info["generation"] < 2:
            return
        if phase == "start":
            self._began = time.thread_time()
        elif time.thread_time() - self._began > LONG_S:
            gc.freeze()
            self._num_set_aside += 1
