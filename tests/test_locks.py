"""What is installed: one version and its hashes for every package, none with a known hole, and the same everywhere."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools.lock import ALL, LOCKS, ROOT, Lock

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PIN = re.compile(r"^([\w.-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)
PLATFORM = {
    "python_version": "3.11",
    "python_full_version": "3.11.15",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}
"""What the locks are made for."""


@cache
def pins_of(lock: Lock) -> dict[str, Version]:
    """The version of each package, by its canonical name."""
    return {
        canonicalize_name(name): Version(version) for name, version, _ in PIN.findall(lock.path.read_text())
    }


def requirements_of(extras: tuple[str, ...]) -> list[Requirement]:
    """What pyproject.toml asks for with these extras, on the locks' platform."""
    optional = PROJECT["optional-dependencies"]
    texts = [*PROJECT["dependencies"], *(text for extra in extras for text in optional[extra])]
    asked = [Requirement(text) for text in texts]
    environment = {name: str(value) for name, value in default_environment().items()} | PLATFORM
    kept = [each for each in asked if each.marker is None or each.marker.evaluate(environment)]
    ours = {extra for each in kept if each.name == PROJECT["name"] for extra in each.extras}
    return [each for each in kept if each.name != PROJECT["name"]] + (
        requirements_of(tuple(sorted(ours))) if ours else []
    )


@cache
def floors() -> list[Requirement]:
    lines = [line.partition("#") for line in (LOCKS / "floors.txt").read_text().splitlines()]
    return [Requirement(text.strip()) for text, _, _ in lines if text.strip()]


@pytest.fixture(params=ALL, ids=lambda lock: lock.name)
def lock(request: pytest.FixtureRequest) -> Lock:
    assert isinstance(request.param, Lock)
    return request.param


def test_every_line_is_a_version_with_hashes(lock: Lock) -> None:
    """Else pip would not look at the hash of any."""
    rest = PIN.sub("", lock.path.read_text())
    assert [line for line in rest.splitlines() if line and not line.startswith("#")] == []


def test_a_lock_has_what_the_project_asks_for(lock: Lock) -> None:
    """When this fails, pyproject.toml or constraints.txt has changed: `make lock`."""
    pins = pins_of(lock)
    constraints = [
        Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if line[0] != "#"
    ]
    for asked in requirements_of(lock.extras):
        version = pins.get(canonicalize_name(asked.name))
        assert version is not None, f"{asked.name} is not in {lock.path.name}"
        assert asked.specifier.contains(version), (
            f"{lock.path.name} has {asked.name} {version}, not {asked.specifier}"
        )
    for constraint in constraints:
        version = pins.get(canonicalize_name(constraint.name))
        assert version is None or constraint.specifier.contains(version)


def test_nothing_locked_has_a_known_hole(lock: Lock) -> None:
    pins = pins_of(lock)
    for floor in floors():
        version = pins.get(canonicalize_name(floor.name))
        assert version is None or floor.specifier.contains(version), (
            f"{lock.path.name}: {floor.name} {version}"
        )


def test_what_the_project_allows_has_no_known_hole() -> None:
    """Others install without our locks."""
    bound = {canonicalize_name(floor.name): floor for floor in floors()}
    least: dict[str, Version] = {}
    for asked in requirements_of(tuple(PROJECT["optional-dependencies"])):
        lower = [Version(each.version) for each in asked.specifier if each.operator in (">=", "==")]
        if lower and (name := canonicalize_name(asked.name)) in bound:
            least[name] = max(least.get(name, Version("0")), *lower)
    assert {"jinja2", "starlette", "torch", "protobuf"} <= least.keys()
    for name, version in least.items():
        assert bound[name].specifier.contains(version), (
            f"{name}>={version} allows what {bound[name]} does not"
        )


def test_every_floor_is_about_something_that_is_installed() -> None:
    locked = {name for lock in ALL for name in pins_of(lock)}
    assert [floor.name for floor in floors() if canonicalize_name(floor.name) not in locked] == []


def test_images_run_what_was_tested() -> None:
    tested = pins_of(ALL[0])
    for lock in ALL:
        for name, version in pins_of(lock).items():
            if lock.follows and name in tested and not (lock.has_cuda and name in ("torch", "triton")):
                assert version == tested[name], f"{lock.name}: {name}"


def test_torch_is_for_cpus_or_for_gpus() -> None:
    for lock in ALL:
        version = pins_of(lock).get("torch")
        nvidia = [name for name in pins_of(lock) if name.startswith("nvidia-")]
        assert bool(nvidia) == lock.has_cuda
        assert version is None or version.local == (None if lock.has_cuda else "cpu")


def test_what_a_lock_is_for_installs_from_it() -> None:
    makefile, dockerfile = ((ROOT / name).read_text() for name in ("Makefile", "Dockerfile"))
    assert "--require-hashes --no-deps -r $(LOCK)" in makefile
    for name in ("scheduler", "frontend", "worker", "worker-gpu"):
        assert re.search(rf"--require-hashes --no-deps -r locks/{name}\.txt", dockerfile)
    installs = [line for line in dockerfile.splitlines() if re.search(r"pip .*install", line)]
    assert len(installs) == 8
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    assert not re.search(r"(?m)^[^#]*pip install [^-]", Path(ROOT / ".ci/run").read_text())
