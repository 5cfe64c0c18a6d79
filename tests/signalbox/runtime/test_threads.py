"""Threads that end before they begin (LO3)."""

from __future__ import annotations

import threading

import pytest

from signalbox.runtime import parts
from signalbox.runtime.parts import Thread


def die_at_birth(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The first thread of that name has no memory for its first line: Python's part of it fails, as seen under
    RLIMIT_AS."""
    real, has_died = threading.Thread._bootstrap, threading.Event()  # type: ignore[attr-defined]

    def bootstrap(thread: threading.Thread) -> None:
        if thread.name == name and not has_died.is_set():
            has_died.set()
            raise SystemExit  # ends a thread without a word
        real(thread)

    monkeypatch.setattr(threading.Thread, "_bootstrap", bootstrap)
    monkeypatch.setattr(parts, "BEGIN_S", 0.3)


def test_whoever_starts_a_thread_is_told_that_it_never_began(monkeypatch: pytest.MonkeyPatch) -> None:
    die_at_birth(monkeypatch, "mortal")
    ran = threading.Event()
    with pytest.raises(RuntimeError, match="no memory"):
        Thread(target=ran.set, name="mortal", daemon=True).start()
    assert not ran.is_set()
    later = Thread(target=ran.set, name="mortal", daemon=True)
    later.start()
    later.join(10)
    assert ran.is_set() and not later.is_alive()


def test_a_thread_starts_once() -> None:
    thread = Thread(target=lambda: None, daemon=True)
    thread.start()
    thread.join(10)
    with pytest.raises(RuntimeError, match="only be started once"):
        thread.start()
