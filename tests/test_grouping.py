"""Tests of a file run in one process: rings that they share are started once."""

from __future__ import annotations

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="runs in several processes only")
def test_a_file_is_a_group(request: pytest.FixtureRequest) -> None:
    """Versions of pytest and xdist that do not fit drop the groups without a word."""
    assert request.node.nodeid.endswith("@tests/test_grouping.py")
