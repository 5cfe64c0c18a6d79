"""Settings that hang together."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from signalbox.errors import StartupError
from tests.worker_svc.transfer.memories import make_memory
from worker_svc.config import HAND_OVER_S, WorkerSettings
from worker_svc.transfer.channels.nixl_agent import MODULE
from worker_svc.transfer.opening import open_server


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


@pytest.mark.parametrize(("names", "wrong"), [("tcp,rdma", "'rdma' is no channel"), ("tcp,tcp", "twice")])
def test_channels_that_are_none_are_refused_by_name(names: str, wrong: str) -> None:
    """TR2"""
    with pytest.raises(ValidationError, match=wrong):
        WorkerSettings(transfer_channels=names)


def test_channels_are_taken_in_the_order_of_their_names() -> None:
    """TR2"""
    assert WorkerSettings().channel_names == ("shared-memory", "tcp")
    assert WorkerSettings(hand_off=True, transfer_channels="nixl, tcp").channel_names == ("nixl", "tcp")
    assert WorkerSettings(transfer_channels="").channel_names == ()


def test_nixl_is_refused_where_it_would_do_nothing_and_beside_certificates(tmp_path: Path) -> None:
    """TR11: it knows none."""
    with pytest.raises(ValidationError, match="nixl needs --hand-off"):
        WorkerSettings(transfer_channels="nixl")
    with pytest.raises(StartupError, match="in messages alone"):
        open_server(WorkerSettings(hand_off=True, transfer_channels="nixl"), None)
    files = {"tls_cert": tmp_path / "cert", "tls_key": tmp_path / "key", "tls_ca": tmp_path / "ca"}
    assert WorkerSettings(hand_off=True, **files).has_certificate  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="nixl beside certificates"):
        WorkerSettings(hand_off=True, transfer_channels="nixl", **files)  # type: ignore[arg-type]


def test_nixl_listens_in_plaintext_wherever_it_is_not_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """TR11"""
    monkeypatch.delenv("UCX_NET_DEVICES", raising=False)
    settings = WorkerSettings(hand_off=True, transfer_channels="nixl")
    with pytest.raises(StartupError, match="--insecure"):
        settings.take_effect()
    WorkerSettings(hand_off=True).take_effect()
    monkeypatch.setenv("UCX_NET_DEVICES", "lo")
    settings.take_effect()


def test_nixl_that_is_asked_for_and_not_here_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """TR10: with one sentence that says what to install."""
    monkeypatch.setitem(sys.modules, MODULE, None)
    with pytest.raises(StartupError, match=r"signalbox\[nixl\]"):
        open_server(WorkerSettings(hand_off=True, transfer_channels="nixl"), make_memory())
