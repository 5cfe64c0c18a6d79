"""Safetensors files that lie: each is refused with a sentence, and nothing else happens."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from worker_svc.runner.errors import ModelLoadError
from worker_svc.weights.tensor_file import read_tensors

ENTRY: dict[str, Any] = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


def write(path: Path, header: bytes) -> Path:
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    return path


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "header",
    [
        b"[" * 200_000,
        b'{"a":' * 100_000,
        json.dumps({"a": ENTRY | {"shape": [float("inf")]}}).encode(),
        json.dumps({"a": ENTRY | {"data_offsets": [0, float("inf")]}}).encode(),
        json.dumps({"a": ENTRY | {"shape": [0, 2**70], "data_offsets": [0, 0]}}).encode(),
        json.dumps({"a": ENTRY | {"shape": [1] * 1000 + [4]}}).encode(),
        b'{"a":{"dtype":"F32","shape":[%s],"data_offsets":[0,16]}}' % b",".join([b"9" * 1000] * 20_000),
    ],
    ids=["lists", "objects", "infinite shape", "infinite place", "nothing of much", "dimensions", "product"],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, header: bytes) -> None:
    with pytest.raises(ModelLoadError, match=r"m\.safetensors"):
        read_tensors(write(tmp_path / "m.safetensors", header))


def test_an_honest_header_is_read(tmp_path: Path) -> None:
    header = json.dumps({"a": ENTRY, "b": ENTRY | {"shape": [0, 5], "data_offsets": [16, 16]}}).encode()
    tensors = read_tensors(write(tmp_path / "m.safetensors", header))
    assert [tuple(each.load().shape) for each in tensors.values()] == [(2, 2), (0, 5)]
