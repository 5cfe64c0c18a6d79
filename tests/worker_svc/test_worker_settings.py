"""Settings that hang together."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from worker_svc.config import HAND_OVER_S, WorkerSettings


@pytest.mark.parametrize(
    ("drain_s", "hand_off", "expected"),
    [(None, False, 0.0), (None, True, HAND_OVER_S), (0.0, True, 0.0), (5.0, True, 5.0), (5.0, False, 5.0)],
)
def test_a_worker_that_hands_over_has_time_for_it(
    drain_s: float | None, hand_off: bool, expected: float
) -> None:
    """HO14"""
    assert WorkerSettings(drain_s=drain_s, hand_off=hand_off).drain_time_s == expected


def test_a_role_without_hand_off_is_refused() -> None:
    """PD3: nothing could move."""
    with pytest.raises(ValidationError, match="--role decode needs --hand-off"):
        WorkerSettings(role="decode")
    assert WorkerSettings(role="decode", hand_off=True).role == "decode"
