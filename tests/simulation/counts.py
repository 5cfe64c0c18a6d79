"""How many random scenarios are tried."""

from __future__ import annotations

import os

FULL_COUNTS = bool(os.environ.get("SIGNALBOX_SIMULATION"))
"""As many as `make soak` tries; else a third of them, each time the same ones."""
