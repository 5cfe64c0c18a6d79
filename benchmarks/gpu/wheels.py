"""Packages that the machine lacks, from a folder of wheels that was made elsewhere (`make gpu-wheels`).

Only what is missing or too old is unpacked, so that the machine's own torch, triton and transformers run. Needs nothing
but Python."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "dist" / "gpu-wheels"
"""Where `make gpu-wheels` puts them."""
OF_THE_MACHINE = ("torch", "triton", "transformers")
"""Packages that are in no folder of wheels."""
NEEDED = {
    "torch": "torch",
    "triton": "triton",
    "transformers": "transformers",
    "grpc": "grpcio",
    "google.protobuf": "protobuf",
    "llguidance": "llguidance",
    "pydantic_settings": "pydantic-settings",
    "uvicorn": "uvicorn",
    "orjson": "orjson",
    "prometheus_client": "prometheus-client",
    "pythonjsonlogger": "python-json-logger",
}
"""Modules without which no run can begin, and their packages; each brings those that it needs itself."""


def use(folder: Path) -> None:
    """Unpacks what is missing or older here and has the right form for this Python, and puts it ahead on the path of
    this process and of those that it starts. Does nothing without the folder."""
    target = folder / f"unpacked-{sys.implementation.cache_tag}"
    for wheel in sorted(folder.glob("*.whl")):
        name, wheel_version = wheel.name.split("-")[:2]
        if is_for_us(wheel.name) and not has(name, wheel_version):
            mark = target / f".{name}-{wheel_version}"
            if not mark.exists():
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(target)
                mark.touch()
    if target.is_dir():
        sys.path.insert(0, str(target))
        others = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = str(target) + (os.pathsep + others if others else "")
        importlib.invalidate_caches()


def missing() -> list[str]:
    """Packages without which no run can begin."""
    return [package for module, package in NEEDED.items() if not _is_there(module)]


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False


def is_for_us(file_name: str) -> bool:
    """Whether a wheel is for this Python, by its name."""
    python, abi, _ = file_name.removesuffix(".whl").rsplit("-", 3)[1:]
    here = f"cp{sys.version_info.major}{sys.version_info.minor}"
    pythons = python.split(".")
    if abi == "abi3":
        return any(int(each.removeprefix("cp3") or 0) <= sys.version_info.minor for each in pythons)
    return "py3" in pythons or here in pythons


def has(name: str, least: str) -> bool:
    """Whether a package is installed in at least a version."""
    try:
        return numbers(version(name)) >= numbers(least)
    except PackageNotFoundError:
        return False


def normal(name: str) -> str:
    """A package's name as the index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def numbers(text: str) -> tuple[int, ...]:
    """The numbers that a version begins with."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()
