"""Certificates for rings under faults: those of the ring's authority, and of another."""

from __future__ import annotations

import pytest

from signalbox.links.tls.roles import Role
from tests.signalbox.links.tls.certificates import Certificates


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of every role."""
    certificates = Certificates.make(tmp_path_factory.mktemp("ours"))
    for role in Role:
        certificates.files(role)
    return certificates


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Another authority."""
    return Certificates.make(tmp_path_factory.mktemp("theirs"))
