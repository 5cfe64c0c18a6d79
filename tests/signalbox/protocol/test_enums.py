"""Enumerations are those of the messages: every name and number, none missing."""

from __future__ import annotations

import re
from enum import IntEnum

import pytest

from signalbox.protocol import enums
from signalbox.v1 import (
    admin_pb2,
    from_frontend_pb2,
    from_worker_pb2,
    generation_pb2,
    scheduler_pb2,
    shared_pb2,
    to_frontend_pb2,
    worker_pb2,
)

MODULES = (
    admin_pb2,
    from_frontend_pb2,
    from_worker_pb2,
    generation_pb2,
    scheduler_pb2,
    shared_pb2,
    to_frontend_pb2,
    worker_pb2,
)
MESSAGES = {
    name: descriptor
    for module in MODULES
    for name, descriptor in module.DESCRIPTOR.enum_types_by_name.items()
}
MESSAGE_OF = {"WorkerReach": "WorkerReachState"}
"""Where the name differs."""
OURS = [
    kind
    for kind in vars(enums).values()
    if isinstance(kind, type) and issubclass(kind, IntEnum) and kind is not IntEnum
]


@pytest.mark.parametrize("kind", OURS, ids=lambda kind: kind.__name__)
def test_names_and_numbers_are_those_of_the_message(kind: type[IntEnum]) -> None:
    name = MESSAGE_OF.get(kind.__name__, kind.__name__)
    prefix = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper() + "_"
    theirs = {value.name.removeprefix(prefix): value.number for value in MESSAGES[name].values}
    mine = {member.name: member.value for member in kind}
    theirs.pop("UNSPECIFIED")
    mine.pop("UNSPECIFIED", None)
    assert mine == theirs


def test_there_are_some() -> None:
    assert len(OURS) >= 8
