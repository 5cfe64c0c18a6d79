"""Takes the memory for a model's recurrent states, or says why the model cannot be served so."""

from __future__ import annotations

import logging
import math

import torch

from signalbox.protocol.block_groups import StateGroup
from worker_svc.core.batch import DEFAULT_SLOTS
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.loading import LoadedModel
from worker_svc.runner.model.memory import CPU_MEMORY_SHARE, available_bytes, in_gib
from worker_svc.runner.recurrent.store import StateStore, rows_per_slot
from worker_svc.runner.split.split import Split

logger = logging.getLogger(__name__)
SCAN_TOKENS = 64
"""A scan that is cut at multiples of it gives the states of one that is not (SG6)."""
CHECKPOINT_SHARE = 0.2
"""Share of the memory that is free beside the model and the states of all slots that checkpoints take at most."""
CHECKPOINTS_PER_SLOT = 2
"""Checkpoints for each slot at most, where no setting says so."""


def make_store(
    model: LoadedModel,
    num_slots: int | None,
    num_checkpoints: int | None = None,
    num_drafts: int = 0,
    *,
    num_host_requests: int = 0,
    most_in_flight: int = 1,
) -> StateStore | None:
    """The states of `num_slots` requests, and one more for what no request asks, and `num_checkpoints`; None: the model
    has no states. Where its layers are at several stages, all have as many of both as the one has room for that has the
    least, and of one without recurrent layers they take no memory (RK17).

    num_slots None: the usual number, or as many as `CPU_MEMORY_SHARE` of the free memory holds. num_checkpoints None:
    as many as usual, or as `CHECKPOINT_SHARE` of what is free then holds. num_drafts: the most that a request has in a
    step. num_host_requests: those that the host tier is for; their checkpoints have places there. most_in_flight: steps
    that may be on their way at a time: each reads one version of a slot's state and writes the next. With drafts there
    is one more, for states that nobody reads. ModelLoadError, too, where something was asked for that they do not go
    with, or where memory is short.
    """
    if not model.state_bytes:
        return None
    layout, split = model.state_layout, model.split
    is_on_gpu = model.device.type == "cuda"
    if num_host_requests and is_on_gpu and split is not None:
        raise ModelLoadError(
            f"num_host_blocks: model_type {model.module.config.model_type!r} has recurrent layers, whose states "
            "have no places in a host tier of several GPUs."
        )
    available = available_bytes(model.device)
    if split is not None:  # those of one host take as much
        available = split.everyone.least(available) // split.everyone.num_here
    width = int(model.module.config.get_text_config().hidden_size)
    num_versions = most_in_flight + 1 + (num_drafts > 0)
    state_bytes = max(1, layout.bytes_per_row)
    row_bytes = state_bytes + layout.bytes_of_drafts(num_drafts, width)
    slot_bytes = row_bytes * rows_per_slot(num_versions, 1)
    if num_checkpoints is None and ((num_slots or 1) + 1) * slot_bytes > available:
        num_checkpoints = 0  # what was asked for goes before
    if num_checkpoints == 0:
        slot_bytes = row_bytes * num_versions
    count = least(split, slots_that_fit(num_slots, slot_bytes, available))
    if num_slots is None and count < DEFAULT_SLOTS:
        logger.info("%d requests may be here at a time: each takes memory for its states", count)
    left = available - (count + 1) * slot_bytes
    num_saved = 0 if num_checkpoints == 0 else CHECKPOINTS_PER_SLOT * num_host_requests
    if is_on_gpu:
        left_beside_saved(num_saved, state_bytes, available_bytes(torch.device("cpu")))
    else:
        left = left_beside_saved(num_saved, state_bytes, left)
    num_checkpoints = least(split, checkpoints_that_fit(num_checkpoints, count, state_bytes, left))
    if num_checkpoints:
        size = in_gib((num_checkpoints + num_saved) * layout.bytes_per_row)
        saved = f", and {num_saved} in the host tier," if num_saved else ""
        logger.info("%d checkpoints of recurrent states%s take %s", num_checkpoints, saved, size)
    return StateStore(
        layout,
        num_slots=count + 1,
        num_versions=num_versions,
        num_checkpoints=num_checkpoints,
        num_host_checkpoints=num_saved if num_checkpoints else 0,
        num_drafts=num_drafts,
        width=width,
        device=model.device,
    )


def least(split: Split | None, number: int) -> int:
    """The least number that any rank has (RK8)."""
    return number if split is None else split.everyone.least(number)


def left_beside_saved(num_saved: int, state_bytes: int, available: int) -> int:
    """Memory that is left beside so many checkpoints in the host tier, of `state_bytes` each. ModelLoadError where they
    do not fit into what is available beside the slots."""
    if num_saved and num_saved * state_bytes > available:
        raise ModelLoadError(
            f"num_host_blocks: beside these blocks {num_saved} recurrent states take {in_gib(num_saved * state_bytes)} "
            f"in the host tier, but only {in_gib(max(0, available))} of memory are available."
        )
    return available - num_saved * state_bytes


def checkpoints_that_fit(wanted: int | None, num_slots: int, state_bytes: int, available: int) -> int:
    """How many checkpoints there are to be, of `state_bytes` each; 0: none were wanted, or there is no room.
    ModelLoadError where so many as were asked for do not fit into the memory that is available beside the slots."""
    most = max(available, 0) // state_bytes
    if wanted is None:
        return min(CHECKPOINTS_PER_SLOT * num_slots, int(most * CHECKPOINT_SHARE))
    if wanted > most:
        raise ModelLoadError(
            f"num_checkpoints is {wanted}: so many recurrent states take {in_gib(wanted * state_bytes)}, but only "
            f"{in_gib(available)} of memory are available beside those of {num_slots} requests, enough for {most}."
        )
    return wanted


def state_group_of(store: StateStore | None, block_size: int, state_bytes: int) -> StateGroup | None:
    """The checkpoints of a store for a hello, of `state_bytes` each; None: there are none."""
    if store is None or not store.num_checkpoints:
        return None
    boundary = math.lcm(block_size, SCAN_TOKENS)
    return StateGroup(
        boundary,
        store.num_checkpoints,
        state_bytes,
        num_host_checkpoints=store.num_host_checkpoints,
    )


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
