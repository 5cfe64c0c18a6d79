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


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        ("tcp,rdma", "'rdma' is no channel"),
        ("tcp,tcp", "twice"),
        ("nixl,tcp", "the channel nixl was removed in version 0.2: use shared-memory or tcp"),
    ],
)
def test_channels_that_are_none_are_refused_by_name(names: str, wrong: str) -> None:
    """TR2"""
    with pytest.raises(ValidationError, match=wrong):
        WorkerSettings(transfer_channels=names)


def test_channels_are_taken_in_the_order_of_their_names() -> None:
    """TR2"""
    assert WorkerSettings().channel_names == ("shared-memory", "tcp")
    assert WorkerSettings(transfer_channels="tcp, shared-memory").channel_names == ("tcp", "shared-memory")
    assert WorkerSettings(transfer_channels="").channel_names == ()
