"""Tiny models, as the tests of runners have them."""

from __future__ import annotations

from tests.worker_svc.runner.conftest import model_dir

__all__ = ["model_dir"]
