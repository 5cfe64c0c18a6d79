"""A field that is sent and never read is a promise to nobody. It is known by its name alone: one that several messages
share is taken for read in all of them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from signalbox.v1 import (
    admin_pb2,
    from_frontend_pb2,
    from_worker_pb2,
    frontend_pb2,
    generation_pb2,
    scheduler_pb2,
    shared_pb2,
    to_frontend_pb2,
    to_worker_pb2,
    worker_pb2,
)
from tools.packages import PRODUCT

ROOT = Path(__file__).resolve().parent.parent.parent
MODULES = (
    admin_pb2,
    from_frontend_pb2,
    from_worker_pb2,
    frontend_pb2,
    generation_pb2,
    scheduler_pb2,
    shared_pb2,
    to_frontend_pb2,
    to_worker_pb2,
    worker_pb2,
)
UNREAD = {
    "WorkerStatus.num_lent_blocks": "for operators, by any gRPC client",
    "BoardWorker.blocks_per_cell": "for whoever reads the board as JSON",
    "BoardPercentiles.p90_ms": "for whoever reads the board as JSON",
}


@cache
def sources() -> str:
    """All that is written by hand."""
    paths = [path for name in PRODUCT for kind in ("py", "js") for path in (ROOT / name).rglob(f"*.{kind}")]
    return "\n".join(path.read_text() for path in paths if "_pb2" not in path.name)


def is_read(name: str) -> bool:
    """As an attribute that is not set, by its name in quotes, or as a column of a group, which is read as a whole."""
    patterns = (rf"\.{name}\b(?!\s*=[^=])", rf"""["']{name}["']""", rf"\b{name}=(?:U8|U16|U32|U64|I32)\b")
    return re.search("|".join(patterns), sources()) is not None


@pytest.mark.parametrize("module", MODULES)
def test_every_field_is_read_by_somebody(module: ModuleType) -> None:
    messages = module.DESCRIPTOR.message_types_by_name.values()
    unread = {
        f"{message.name}.{field.name}"
        for message in messages
        for field in message.fields
        if not is_read(field.name)
    }
    assert unread == {name for name in UNREAD if name.partition(".")[0] in {each.name for each in messages}}
