"""The mirrors of the library's structs are what the library has."""

from __future__ import annotations

import ctypes
import re
from ctypes import c_double, c_float, c_int32, c_int64, c_uint32, c_void_p

import pytest

from worker_svc.runner.cpu.native import build, structs
from worker_svc.runner.cpu.native.kernels import Kernels

TYPES = {
    "int64_t": c_int64,
    "int32_t": c_int32,
    "uint32_t": c_uint32,
    "float": c_float,
    "double": c_double,
    "Packed": structs.PackedCall,
}


def fields(name: str) -> list[tuple[str, object]]:
    """(name, type as in a mirror) of each field of a struct, read in its source."""
    text = "\n".join(path.read_text() for path in build.source_files())
    found = re.search(rf"^struct {name} {{\n(.*?)^}};", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    body = re.sub(r"//.*", "", found.group(1))
    declared: list[tuple[str, object]] = []
    for line in filter(None, (" ".join(line.split()) for line in body.split(";"))):
        kind, names = re.fullmatch(r"(?:const )?(\w+)(\W.*)", line).groups()  # type: ignore[union-attr]
        for each in names.split(","):
            declared.append((each.strip(" *"), c_void_p if "*" in each else TYPES[kind]))
    return declared


@pytest.mark.parametrize("name", structs.MIRRORS)
def test_a_mirror_has_the_fields_of_its_struct_in_their_order(name: str) -> None:
    assert list(structs.MIRRORS[name]._fields_) == fields(name)


class Longer(structs.RopeCall):
    """One field too many."""

    _fields_ = (("padding", c_int64),)


class Reordered(ctypes.Structure):
    """As large as `RopeCall`, and ends otherwise."""

    _fields_ = (*structs.RopeCall._fields_[:-3], ("num_threads", c_int32), ("is_bf16", c_int64))


@pytest.mark.parametrize("wrong", [Longer, Reordered])
def test_a_wrong_mirror_is_refused(
    kernels: Kernels, wrong: type[ctypes.Structure], monkeypatch: pytest.MonkeyPatch
) -> None:
    structs.check_layouts(kernels.library)
    monkeypatch.setitem(structs.MIRRORS, "Rope", wrong)
    with pytest.raises(structs.LayoutError, match=r"struct Rope .* \(136, 132\) in the library"):
        structs.check_layouts(kernels.library)


def test_a_struct_without_a_mirror_is_refused(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(structs.MIRRORS, "Packed")
    with pytest.raises(structs.LayoutError, match=r"struct Packed .* None in"):
        Kernels(kernels.library)
