"""Weights as transformers takes them: made when it asks for them, in its threads, and counted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from types import EllipsisType

import torch

from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.kept_weights import KeptWeights
from worker_svc.weights.heap import heap_trim
from worker_svc.weights.served import served_form
from worker_svc.weights.source import WeightSource
from worker_svc.weights.weight import Weight

logger = logging.getLogger(__name__)

TOLD_SHARE = 0.1
"""Share of the weights after which the log says anew how far loading is, if it is more than a moment's."""
TOLD_BYTES = 256e6


class LazyWeights:
    """The weights of a source, of which one is in memory only once the model wants it."""

    def __init__(
        self,
        source: WeightSource,
        dtype: torch.dtype,
        kept: KeptWeights | None = None,
        float32_parts: Iterable[str] = (),
    ) -> None:
        """`kept` takes those aside that stay whole numbers; None: none do. A weight whose name has one of the
        `float32_parts` is not rounded to `dtype`."""
        self.failure: ModelLoadError | None = None
        """The first weight that could not be read; transformers tells of such things in its own words."""
        self._dtype = dtype
        self._kept = kept
        self._float32_parts = tuple(float32_parts)
        self._progress = _Progress(source.stored_bytes)
        self._weights = source.weights

    def state_dict(self) -> dict[str, LazyWeight]:
        """The weights by names; each gives its tensor for `[...]`."""
        return {name: LazyWeight(self, weight) for name, weight in self._weights.items()}

    def read(self, weight: Weight) -> torch.Tensor:
        """The weight in the form in which it is served. Called by several threads."""
        try:
            dtype = torch.float32 if any(part in weight.name for part in self._float32_parts) else self._dtype
            stored, kept = weight.read(dtype), self._kept
            made = served_form(stored, dtype) if kept is None else kept.form(weight.name, stored, dtype)
            if made is not stored:
                weight.forget()
        except ModelLoadError as error:
            self.failure = self.failure or error
            raise
        self._progress.add(weight.stored_bytes)
        heap_trim.add(weight.stored_bytes)
        return made


class LazyWeight:
    """Stands for a tensor in a state dict."""

    def __init__(self, weights: LazyWeights, weight: Weight) -> None:
        self._weights = weights
        self._weight = weight

    def __getitem__(self, _index: EllipsisType) -> torch.Tensor:
        return self._weights.read(self._weight)

    def get_shape(self) -> list[int]:
        """Its lengths, as slices of the safetensors library tell them."""
        return list(self._weight.shape)


class _Progress:
    """Tells the log how many bytes were read."""

    def __init__(self, total_bytes: int) -> None:
        self._total = total_bytes
        self._done = 0
        self._told = 0
        self._lock = threading.Lock()

    def add(self, num_bytes: int) -> None:
        with self._lock:  # which lines come in order by, too
            self._done += num_bytes
            most = max(TOLD_SHARE * self._total, TOLD_BYTES)
            if self._done - self._told < most and self._done < self._total:
                return
            self._told = self._done
            logger.info("weights: %d of %d MB read", self._done / 1e6, self._total / 1e6)
