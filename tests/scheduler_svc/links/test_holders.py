"""Who may have the requests of a frontend that says hello, as its message tells it (docs/design.md, J1)."""

from __future__ import annotations

import pytest

from scheduler_svc.core.state.requests.evidence import Process
from scheduler_svc.links.codec.holders import parse_holders
from signalbox.errors import InvalidRequestError
from signalbox.v1 import from_frontend_pb2, shared_pb2

V, W = Process("v", "1"), Process("w", "2")


def make_hello(num_live: int, *columns: list[int]) -> from_frontend_pb2.FrontendHello:
    num_holders, holders = columns or ([], [])
    return from_frontend_pb2.FrontendHello(
        live=[shared_pb2.RequestRef(request_id=f"r{number}") for number in range(num_live)],
        workers=[shared_pb2.WorkerRef(worker_id=name, worker_instance=uuid) for name, uuid in (V, W)],
        num_holders=num_holders,
        holders=holders,
    )


def test_each_request_has_its_own() -> None:
    hello = make_hello(3, [1, 0, 2], [1, 0, 1])
    assert parse_holders(hello) == {"r0": (W,), "r1": (), "r2": (V, W)}


def test_a_frontend_of_an_earlier_release_means_all_that_it_names() -> None:
    hello = make_hello(1)
    assert parse_holders(hello) == {"r0": (V, W)}
    del hello.workers[:]
    assert parse_holders(hello) == {"r0": None}, "any worker may have it"


@pytest.mark.parametrize("columns", [([1], [0]), ([1, 1], [0]), ([1, 1], [0, 2]), ([0, 0], [1])])
def test_columns_that_contradict_each_other_are_refused(columns: tuple[list[int], list[int]]) -> None:
    with pytest.raises(InvalidRequestError, match=r"holder|say of each"):
        parse_holders(make_hello(2, *columns))
