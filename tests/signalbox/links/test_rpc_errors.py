"""What a gRPC status of ours says, and what a proxy made of it."""

from __future__ import annotations

import grpc
import pytest

from signalbox.errors import ResourceExhaustedError
from signalbox.links.rpc_errors import error_of


@pytest.mark.parametrize(
    ("told", "seconds"), [("3", 3.0), ("Wed, 21 Oct 2015 07:28:00 GMT", None), ("nan", None)]
)
def test_a_time_to_wait_that_is_no_number_is_none(told: str, seconds: float | None) -> None:
    trailing = grpc.aio.Metadata(("signalbox-error", "ResourceExhaustedError"), ("retry-after", told))
    status = grpc.aio.AioRpcError(
        grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.aio.Metadata(), trailing, details="too many"
    )
    error = error_of(status, "somewhere")
    assert isinstance(error, ResourceExhaustedError)
    assert error.retry_after_s == seconds
