"""Takes the memory for a model's recurrent states, or says why the model cannot be served so."""

from __future__ import annotations

import logging

from worker_svc.core.batch import DEFAULT_SLOTS
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.loading import LoadedModel
from worker_svc.runner.model.memory import CPU_MEMORY_SHARE, available_bytes, in_gib
from worker_svc.runner.recurrent.store import StateStore

logger = logging.getLogger(__name__)
NUM_VERSIONS = 2
"""A step reads one version of a state and writes the other; there is one step at a time."""


def make_store(
    model: LoadedModel, num_slots: int | None, num_host_blocks: int, *, is_served: bool
) -> StateStore | None:
    """The states of `num_slots` requests, and one more for what no request asks; None: the model has none.

    num_slots None: the usual number, or as many as `CPU_MEMORY_SHARE` of the free memory holds. `is_served`: the runner
    serves recurrent layers. ModelLoadError, too, where something was asked for that they do not go with, or where
    memory is short.
    """
    layout = model.state_layout
    if not layout:
        return None
    family = model.module.config.model_type
    if not is_served:
        raise ModelLoadError(
            f"model_type {family!r} has recurrent layers: these are served with device cpu and attention auto alone."
        )
    if num_host_blocks:
        raise ModelLoadError(
            f"num_host_blocks is {num_host_blocks}, but model_type {family!r} has recurrent layers, whose states "
            f"blocks do not hold."
        )
    count = slots_that_fit(num_slots, layout.bytes_per_row * NUM_VERSIONS, available_bytes(model.device))
    if num_slots is None and count < DEFAULT_SLOTS:
        logger.info("%d requests may be here at a time: each takes memory for its states", count)
    return StateStore(layout, num_slots=count + 1, num_versions=NUM_VERSIONS, device=model.device)


def slots_that_fit(num_slots: int | None, slot_bytes: int, available: int) -> int:
    """How many slots there are to be, of `slot_bytes` each. ModelLoadError where those that were asked for, or a single
    one, do not fit into the memory that is available, beside one that no request has."""
    most = available // slot_bytes - 1
    if num_slots is None and most >= 1:
        return min(DEFAULT_SLOTS, max(1, int(available * CPU_MEMORY_SHARE) // slot_bytes - 1))
    wanted = num_slots or 1
    if wanted > most:
        raise ModelLoadError(
            f"num_slots is {wanted}: recurrent states of so many requests take {in_gib(wanted * slot_bytes)}, but only "
            f"{in_gib(available)} of memory are available beside the model, enough for {max(0, most)}."
        )
    return wanted
