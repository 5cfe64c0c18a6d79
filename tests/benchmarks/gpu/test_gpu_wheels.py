"""Packages from a folder of wheels: only those that are missing or too old, and only for this Python."""

from __future__ import annotations

import os
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from benchmarks.gpu import wheels
from tools.gpu_wheels import LOCKS, locked, wanted

HERE = f"cp{sys.version_info.major}{sys.version_info.minor}"


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("starlette-1.10.0-py3-none-any.whl", True),
        ("six-1.16.0-py2.py3-none-any.whl", True),
        (f"grpcio-1.85.1-{HERE}-{HERE}-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", True),
        ("grpcio-1.85.1-cp38-cp38-manylinux2014_x86_64.whl", False),
        ("llguidance-1.9.1-cp39-abi3-manylinux_2_31_x86_64.whl", True),
        ("llguidance-1.9.1-cp399-abi3-manylinux_2_31_x86_64.whl", False),
    ],
)
def test_wheels_for_another_python_are_left_alone(name: str, fits: bool) -> None:
    assert wheels.is_for_us(name) == fits


def test_what_is_missing_or_older_here_is_unpacked_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("only_in_a_wheel-1.0", "tqdm-9999.0", "numpy-1.0"):
        with zipfile.ZipFile(tmp_path / f"{name}-py3-none-any.whl", "w") as archive:
            archive.writestr(f"{name.split('-')[0]}.py", "WORD = 'from a wheel'\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "/others")
    wheels.use(tmp_path)
    target = tmp_path / f"unpacked-{sys.implementation.cache_tag}"
    assert sorted(path.name for path in target.glob("*.py")) == ["only_in_a_wheel.py", "tqdm.py"]
    assert os.environ["PYTHONPATH"] == f"{target}{os.pathsep}/others"
    assert sys.path[0] == str(target)


def test_without_the_folder_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    before = list(sys.path)
    wheels.use(tmp_path / "nowhere")
    assert sys.path == before and "PYTHONPATH" not in os.environ
    assert wheels.missing() == []


def test_what_is_too_old_counts_as_missing() -> None:
    """A wheel needs the versions that it was locked with: grpcio-health-checking asks for its own grpcio at import."""
    assert wheels.has("protobuf", version("protobuf"))
    assert not wheels.has("protobuf", "1000.1")
    assert not wheels.has("no-such-package", "0")


def test_the_wheels_are_those_of_the_services() -> None:
    """Each package that a run asks for is at hand: of the machine, or among the wheels."""
    names = {pin.partition("==")[0] for pin in wanted()}
    needed = set(map(wheels.normal, wheels.NEEDED.values()))
    assert needed - names == {"torch", "triton", "transformers"}
    assert f"grpcio=={locked((LOCKS / 'worker.txt').read_text())['grpcio']}" in wanted()
