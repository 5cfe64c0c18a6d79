"""One ring for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.contract.router_contract")

from tests.contract.processes import ServiceRing  # noqa: E402
from tests.e2e.conftest import shared_rings  # noqa: E402

start_ring = pytest.fixture(scope="package", name="start_ring")(shared_rings)


@pytest.fixture(scope="package")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceRing]:
    ring = ServiceRing(tmp_path_factory.mktemp("ring"))
    yield ring
    ring.stop()
