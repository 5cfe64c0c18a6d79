"""Deadlines and watchers that are taken out on purpose: rings in which a path goes silent (`ring/silence.py`) have to
find each of them."""

from __future__ import annotations

import pytest

from scheduler_svc.core.handoff.patience import Patience
from worker_svc.transfer.control.beats import Hearing

Patch = pytest.MonkeyPatch


def frozen_for_ever(patch: Patch) -> None:
    """HO18: a hand-off takes as long as it takes."""
    patch.setattr(Patience, "is_late", lambda *given: False)


def silent_peers_are_waited_for(patch: Patch) -> None:
    """HO19: nobody looks whether the other worker is there."""
    patch.setattr(Hearing, "check", lambda hearing: None)
