"""Takes the memory for a model's recurrent states, or says why the model cannot be served so."""

from __future__ import annotations

from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.loading import LoadedModel
from worker_svc.runner.model.memory import available_bytes, in_gib
from worker_svc.runner.recurrent.store import StateStore

NUM_VERSIONS = 2
"""A step reads one version of a state and writes the other; there is one step at a time."""


def make_store(
    model: LoadedModel, num_slots: int, num_host_blocks: int, *, is_served: bool
) -> StateStore | None:
    """The states of `num_slots` requests, and one more for what no request asks; None: the model has none.

    `is_served`: the runner serves recurrent layers. ModelLoadError, too, where something was asked for that they do
    not go with, or where memory is short.
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
    row_bytes, available = layout.bytes_per_row * NUM_VERSIONS, available_bytes(model.device)
    if (num_slots + 1) * row_bytes > available:
        raise ModelLoadError(
            f"num_slots is {num_slots}: recurrent states of so many requests take {in_gib(num_slots * row_bytes)}, but "
            f"only {in_gib(available)} of memory are available beside the model, enough for "
            f"{max(0, available // row_bytes - 1)}."
        )
    return StateStore(layout, num_slots=num_slots + 1, num_versions=NUM_VERSIONS, device=model.device)
