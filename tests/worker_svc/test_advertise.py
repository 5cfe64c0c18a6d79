"""The address that a worker tells frontends."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from worker_svc.config import WorkerSettings


@pytest.mark.parametrize("address", ["worker-1", "unix:/x", "host:7310:", "host:", "host:0", "a:1,b:2"])
def test_what_is_no_address_is_refused(address: str) -> None:
    """Frontends would dial it for ever."""
    with pytest.raises(ValidationError, match="is not HOST:PORT"):
        WorkerSettings(advertise=address)


def test_an_address_is_taken() -> None:
    assert WorkerSettings(advertise=" [::1]:7310 ").advertise == "[::1]:7310"
