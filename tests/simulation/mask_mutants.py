"""Bugs planted on purpose in how masks are made beside the steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.simulation.ring.automaton import RuleAutomaton
from worker_svc.core.requests.automaton import GrammarError
from worker_svc.core.requests.grammar import GrammarTable
from worker_svc.core.requests.masks import Masks
from worker_svc.core.worker_core import WorkerCore
from worker_svc.grammar.preparation import GrammarPreparation, Prepared

Patch = pytest.MonkeyPatch
I32 = NDArray[np.int32]


def masks_of_the_token_before(patch: Patch) -> None:
    """G10: a row that is late keeps its masks when its output moves on."""
    drop = GrammarTable.drop_masks

    def keep(table: GrammarTable, slot: int) -> None:
        job = table.jobs.get(slot)
        if job is None or not job.is_ahead:
            drop(table, slot)

    patch.setattr(GrammarTable, "drop_masks", keep)


def late_masks_are_empty(patch: Patch) -> None:
    """G6: a mask that is not there allows nothing."""
    gather = Masks._gather

    def gather_and_fail(masks: Masks) -> NDArray[np.uint32]:
        bits = gather(masks)
        masks.failures.update(dict.fromkeys(masks.late, GrammarError("no token is allowed")))
        masks.late.clear()
        return bits

    patch.setattr(Masks, "_gather", gather_and_fail)


def late_rows_are_believed(patch: Patch) -> None:
    """G6: a row whose mask is late has the token that it would have without a form."""
    patch.setattr(WorkerCore, "_sit_out", lambda core, step, late, failed: {})


def prompts_end_without_their_masks(patch: Patch) -> None:
    """G12: the final chunk of a prompt runs whether its mask is there or not."""
    patch.setattr(GrammarTable, "is_made", lambda table, slot: True)


def masks_are_forgotten_by_preemptions(patch: Patch) -> None:
    """G10: a second job works on an automaton that the first one has not left."""
    make = GrammarTable.make

    def make_anew(table: GrammarTable, slots: Sequence[int]) -> None:
        for slot in slots:
            table.drop_masks(slot)
        make(table, slots)

    patch.setattr(GrammarTable, "make", make_anew)


def replays_forget_their_masks(patch: Patch) -> None:
    """G9: the masks of output that an earlier attempt made do not count."""
    prepare = GrammarPreparation._prepare

    def prepare_and_forget(preparation: GrammarPreparation, wanted: Any) -> Prepared:
        prepared = prepare(preparation, wanted)
        if isinstance(prepared.automaton, RuleAutomaton):
            prepared.automaton.num_counted = 0
        return prepared

    patch.setattr(GrammarPreparation, "_prepare", prepare_and_forget)
