"""The checked-in code is what protos/generate.py makes of the protos, and follows the rules of the field."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import FileDescriptor

from signalbox.v1 import frontend_pb2, generation_pb2, scheduler_pb2, worker_pb2

ROOT = Path(__file__).resolve().parents[3]
FILES: list[FileDescriptor] = [
    module.DESCRIPTOR for module in (frontend_pb2, generation_pb2, scheduler_pb2, worker_pb2)
]


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("package", ["signalbox/v1", "signalbox/vllm"])
def test_the_checked_in_code_is_what_the_protos_make(package: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "protos" / "generate.py", tmp_path], check=True, timeout=60)
    fresh, checked_in = contents(tmp_path / package), contents(ROOT / package)
    assert sorted(fresh) == sorted(checked_in), "run `make protos`"
    for name, text in fresh.items():
        assert text == checked_in[name], f"{name} is out of date: run `make protos`"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_method_has_messages_of_its_own(file: FileDescriptor) -> None:
    for service in file.services_by_name.values():
        for method in service.methods:
            assert method.input_type.name == f"{method.name}Request"
            assert method.output_type.name == f"{method.name}Response"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_zero_of_every_enum_is_unspecified(file: FileDescriptor) -> None:
    for enum in file.enum_types_by_name.values():
        assert enum.values_by_number[0].name.endswith("_UNSPECIFIED")
