"""Rings that a bench compares."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.e2e.conftest import RunningRing, launch


def start(stack: ExitStack, *options: str) -> RunningRing:
    """A ring of its own, stopped with `stack`."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    ring = launch(directory, "--no-proof", *options)
    stack.callback(ring.stop)
    ring.wait_for("signalbox is up")
    return ring
