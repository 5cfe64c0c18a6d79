"""The checked-in code is what protos/generate.py makes of the protos, and follows the rules of the field."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FileDescriptor

from signalbox.v1 import from_frontend_pb2, from_worker_pb2, shared_pb2, to_frontend_pb2, to_worker_pb2

ROOT = Path(__file__).resolve().parents[3]
FILES: list[FileDescriptor] = [
    import_module(f"signalbox.v1.{path.stem}_pb2").DESCRIPTOR
    for path in sorted((ROOT / "protos" / "signalbox" / "v1").glob("*.proto"))
]
LINKS: list[Descriptor] = [
    from_frontend_pb2.AttachFrontendRequest.DESCRIPTOR,
    to_frontend_pb2.AttachFrontendResponse.DESCRIPTOR,
    from_worker_pb2.AttachWorkerRequest.DESCRIPTOR,
    to_worker_pb2.AttachWorkerResponse.DESCRIPTOR,
]
"""Messages of the scheduler's links, up and down. The file of each is its receiver's."""
IN_COLUMNS = {"signalbox.v1.NotRunReason"}
"""Enums whose values are in columns: no field has their type."""


def types_under(message: Descriptor) -> dict[str, Descriptor | EnumDescriptor]:
    """The message, and the messages and enums that its fields lead to, by their full names."""
    found: dict[str, Descriptor | EnumDescriptor] = {}
    todo: list[Descriptor | EnumDescriptor] = [message]
    while todo:
        if (each := todo.pop()).full_name not in found:
            found[each.full_name] = each
            fields = each.fields if isinstance(each, Descriptor) else ()
            todo += [kind for field in fields if (kind := field.message_type or field.enum_type)]
    return found


def types_in(file: FileDescriptor) -> Iterator[str]:
    """Full names of the messages and enums of a file."""
    for kinds in (file.message_types_by_name, file.enum_types_by_name):
        yield from (kind.full_name for kind in kinds.values())


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


@pytest.mark.parametrize("root", LINKS, ids=lambda root: root.name)
def test_a_message_of_a_link_is_in_the_file_of_its_receiver(root: Descriptor) -> None:
    found = types_under(root)
    assert set(types_in(root.file)) - set(found) <= IN_COLUMNS
    homes = {each.file.name for each in found.values()} - {root.file.name}
    assert homes <= {"signalbox/v1/shared.proto", "signalbox/v1/generation.proto"}


@pytest.mark.parametrize("name", list(types_in(shared_pb2.DESCRIPTOR)))
def test_what_is_shared_is_used_by_several_files(name: str) -> None:
    others = [file for file in FILES if file is not shared_pb2.DESCRIPTOR]
    users = [
        file.name
        for file in others
        if any(name in types_under(message) for message in file.message_types_by_name.values())
    ]
    assert len(users) > 1
