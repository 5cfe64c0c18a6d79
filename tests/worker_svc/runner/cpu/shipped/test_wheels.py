"""A wheel with compiled kernels, installed alone, serves without a compiler what a checkout serves with one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ports import free_ports
from tests.worker_svc.runner.cpu.shipped.conftest import HERE, needs_compiler
from tools import wheels
from worker_svc.runner.cpu.flags import cpu_flags
from worker_svc.runner.cpu.native import build
from worker_svc.runner.cpu.shipped.isas import ISAS, runnable

PROMPTS = ("def quicksort(", "import os\n\n\nclass Reader:\n", "for path in ")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def make_wheel(out: Path, machine: str | None, libraries: Path | None) -> Path:
    try:
        return wheels.make_wheel(out, machine, libraries)
    except subprocess.CalledProcessError:
        pytest.skip("there is no setuptools to be had: pip needs the package index for that")


@contextmanager
def ring(root: Path, logs: Path, **environment: str) -> Iterator[str]:
    """URL of a ring with the demo model, run with the packages in `root` and those that this Python has."""
    http, grpc, scheduler, worker = free_ports(4)
    places = {"http": http, "grpc": grpc, "scheduler": scheduler, "worker-listen": worker}
    command = [sys.executable, "-m", "signalbox", "up", "--dtype", "bfloat16", "--log-dir", str(logs)]
    for option, port in places.items():
        command += [f"--{option}", f"127.0.0.1:{port}"]
    logs.mkdir()
    process = subprocess.Popen(
        command,
        cwd=logs,
        env=os.environ | {"PYTHONPATH": str(root)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "signalbox is up" in line:
                break
        else:
            raise AssertionError("".join(said))
        yield f"http://127.0.0.1:{http}"
    finally:
        process.terminate()
        process.communicate(timeout=60)


def completions(url: str) -> list[str]:
    texts = []
    for prompt in PROMPTS:
        body = {"model": "demo", "prompt": prompt, "max_tokens": 48, "temperature": 0}
        request = urllib.request.Request(
            f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as response:
            texts.append(json.load(response)["choices"][0]["text"])
    return texts


def worker_log(logs: Path) -> str:
    return (logs / "worker-0.log").read_text()


@needs_compiler
def test_a_wheel_serves_without_a_compiler(libraries: Path, tmp_path: Path) -> None:
    """The same text, and the log says which kernels run."""
    wheel = make_wheel(tmp_path / "dist", HERE, libraries)
    assert wheel.name.endswith(f"-py3-none-manylinux_2_28_{HERE}.whl")
    installed = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(installed)]
    subprocess.run([*install, str(wheel)], check=True)
    nowhere = {"PATH": "/nowhere", "XDG_CACHE_HOME": str(tmp_path / "cache"), "CXX": "", "CC": ""}
    with ring(installed, tmp_path / "without", **nowhere) as url:
        shipped = completions(url)
    best = runnable(HERE, cpu_flags())[0].name
    assert f"The CPU kernels are the shipped ones for {best}." in worker_log(tmp_path / "without")
    assert not list((tmp_path / "cache").rglob("*.so"))
    with ring(wheels.ROOT, tmp_path / "with") as url:
        assert completions(url) == shipped
    assert re.search(r"The CPU kernels (were compiled|are the shipped)", worker_log(tmp_path / "with"))


def test_a_wheel_for_any_machine_has_no_libraries(tmp_path: Path) -> None:
    """It installs without a compiler, and compiles when it runs."""
    wheel = make_wheel(tmp_path, None, None)
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    sources = {str(path.relative_to(wheels.ROOT)) for path in build.source_files()}
    assert "worker_svc/runner/cpu/native/products/linear.h" in sources and sources <= set(names)
    assert not [name for name in names if name.endswith(".so")]


def test_a_wheel_has_a_library_for_each_kind_of_cpu(tmp_path: Path) -> None:
    """Of another machine as well: what is in it is what was made for it."""
    (tmp_path / "made").mkdir()
    for isa in ISAS:
        (tmp_path / "made" / f"kernels-{isa.name}.so").write_bytes(b"a library")
    (tmp_path / "made" / "kernels.json").write_text("{}")
    wheel = make_wheel(tmp_path, "aarch64", tmp_path / "made")
    assert wheel.name.endswith("_aarch64.whl")
    names = {Path(name).name for name in zipfile.ZipFile(wheel).namelist()}
    assert {f"kernels-{isa.name}.so" for isa in ISAS} | {"kernels.json"} <= names


def test_no_wheel_is_made_for_a_machine_that_nothing_is_compiled_for(tmp_path: Path) -> None:
    with pytest.raises(build.BuildError, match="no C\\+\\+ compiler for riscv64"):
        wheels.make_wheel(tmp_path, "riscv64")
