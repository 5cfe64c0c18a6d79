"""Masks that are late: bugs planted in how they are made beside the steps are found. Each profile of rings has late
masks in some of its scenarios; those of forms have them in all."""

from __future__ import annotations

import pytest

from tests.pairs import in_soak
from tests.simulation import mask_mutants
from tests.simulation.hunts import Hunt, in_rings

HUNTS = [
    in_rings(mask_mutants.masks_of_the_token_before, "forms and drafts"),
    in_rings(mask_mutants.late_masks_are_empty, "forms alone"),
    in_rings(mask_mutants.masks_are_forgotten_by_preemptions, "forms and drafts"),
    in_rings(mask_mutants.replays_forget_their_masks, "forms"),
    # 70 and 48 s of a core; tests/worker_svc/grammar/test_late_masks.py would miss such rows, too.
    *in_soak(
        in_rings(mask_mutants.late_rows_are_believed, "forms, drafts and states"),
        in_rings(mask_mutants.prompts_end_without_their_masks, "forms"),
    ),
]


@pytest.mark.sampled
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hunt", HUNTS, ids=str)
def test_a_planted_bug_is_found(hunt: Hunt, monkeypatch: pytest.MonkeyPatch) -> None:
    hunt.run(monkeypatch)
