"""What others were measured at, for figures that put us beside them: docs/data/vllm.jsonl says where and when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

DATA = Path(__file__).resolve().parents[3] / "docs" / "data" / "vllm.jsonl"


@dataclass(frozen=True)
class Peer:
    """The scheduler of another system."""

    name: str
    speculative: int
    """Draft tokens per step."""
    total_us: dict[int, float]
    """`schedule` and `update_from_output` of one step by running requests, microseconds."""


def _read() -> Iterator[Peer]:
    lines = [
        json.loads(text) for text in DATA.read_text().splitlines()[1:]
    ]  # the first one says where and when
    for (system, mode, drafts), group in groupby(
        lines, key=lambda line: (line["system"], line["mode"], line["speculative"])
    ):
        name = f"{system}, {mode}" if mode else system
        yield Peer(name, drafts, {line["running"]: line["total_us_p50"] for line in group})


SCHEDULERS = tuple(_read())
