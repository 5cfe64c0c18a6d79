"""The Dockerfile, as far as it can be read without a Docker engine: stages, users, extras, commands."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from signalbox.cli.ring.ring import DEMO_MODEL
from tests.k8s.conftest import rendered
from tools.dockerfile import Stage, read_stages
from tools.lock import ALL, Lock
from tools.rehearsal.environment import IMAGE_PATHS
from worker_svc.runner.cpu.shipped.manifest import FOLDER

ROOT = Path(__file__).resolve().parent.parent.parent
SERVICES = ("scheduler", "frontend", "worker")
HEAVY = {"torch", "transformers", "triton"}
BASE = r"python:\d+\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}"
"""A tag for readers, and the one image that it was."""


ARGUMENTS, STAGES = read_stages()


def lineage(name: str) -> list[Stage]:
    """The stage and those it is built on."""
    stage = STAGES[name]
    return [stage, *(lineage(stage.base) if stage.base in STAGES else [])]


def lock_of(image: str) -> Lock:
    """The lock that the environment of an image is made from."""
    (install,) = (run for run in STAGES[f"{image}-build"].all("RUN") if "--require-hashes" in run)
    path = ROOT / install.split()[-1]
    return next(lock for lock in ALL if lock.path == path)


@pytest.mark.parametrize("image", [*SERVICES, "worker-gpu"])
def test_each_image_has_the_packages_and_extras_of_its_service(image: str) -> None:
    lock = lock_of(image)
    assert set(lock.extras) == {image.removesuffix("-gpu"), "telemetry"}
    assert lock.has_cuda == (image == "worker-gpu")
    assert f"--from={image}-build /opt/signalbox /opt/signalbox" in STAGES[image].all("COPY")


@pytest.mark.parametrize("service", SERVICES)
def test_only_the_worker_needs_torch(service: str) -> None:
    text = lock_of(service).path.read_text()
    assert "\ngrpcio==" in text
    assert any(f"\n{name}==" in text for name in HEAVY) == (service == "worker")


@pytest.mark.parametrize("image", [*SERVICES, "worker-gpu"])
def test_nothing_in_an_image_installs_packages(image: str) -> None:
    assert any("venv --without-pip" in command for command in STAGES["build"].all("RUN"))
    removed = " ".join(STAGES["runtime"].all("RUN"))
    assert all(part in removed for part in ("ensurepip", "site-packages/*", "bin/pip*"))
    for stage in lineage(image):
        assert not any(re.search(r"pip .*install", command) for command in stage.all("RUN"))


def test_the_worker_has_compiled_kernels_and_needs_no_compiler() -> None:
    assert any("g++" in command for command in STAGES["kernels"].all("RUN"))
    assert f"--from=kernels /kernels {FOLDER.relative_to(ROOT)}" in STAGES["worker-wheel"].all("COPY")
    for name in ("worker-build", "worker-gpu-build"):
        assert "--from=worker-wheel /wheels /wheels" in STAGES[name].all("COPY")
    for stage in lineage("worker"):
        assert not any("apt-get" in command for command in stage.all("RUN"))


def test_the_kernels_are_made_of_what_their_stage_has(tmp_path: Path) -> None:
    """No package, and no other file of ours, is there when they are compiled."""
    (copy,) = STAGES["kernels"].all("COPY")
    source, target = copy.split()
    shutil.copytree(ROOT / source, tmp_path / target, ignore=shutil.ignore_patterns("__pycache__", "lib"))
    command = STAGES["kernels"].all("RUN")[-1].split()
    assert command[:2] == ["python", "-m"] and command[-1] == "/kernels"
    nothing_else = [sys.executable, "-S", "-m", *command[2:-1], str(tmp_path / "kernels")]
    environment = {"CXX": "no-such-compiler", "PATH": "/nowhere"}
    done = subprocess.run(
        nothing_else, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "make: there is no C++ compiler\n")


def test_a_gpu_has_a_compiler_for_what_triton_compiles_at_its_first_launch() -> None:
    install = STAGES["worker-gpu"].all("RUN")[-1].split()
    assert {"gcc", "libc6-dev"} <= set(install)
    assert STAGES["worker-gpu"].base == STAGES["worker"].base
    assert STAGES["worker-gpu"].all("USER")[-1] == STAGES["runtime"].all("USER")[-1]
    for word in ("EXPOSE", "ENTRYPOINT"):
        assert STAGES["worker-gpu"].all(word) == STAGES["worker"].all(word)


@pytest.mark.parametrize("service", SERVICES)
def test_images_run_as_the_user_of_the_manifests(service: str) -> None:
    user = next(user for stage in lineage(service) for user in reversed(stage.all("USER")))
    for pod in rendered("cpu-demo").pods:
        context = pod.spec["securityContext"]
        assert user == f"{context['runAsUser']}:{context['runAsGroup']}"


@pytest.mark.parametrize("service", SERVICES)
def test_images_start_what_the_manifests_start(service: str) -> None:
    (pod, *_) = (pod for pod in rendered("cpu-demo").pods if pod.component == service)
    (entry_point,) = STAGES[service].all("ENTRYPOINT")
    assert json.loads(entry_point) == pod.container["command"]
    (command,) = pod.container["command"]
    assert metadata.entry_points(group="console_scripts", name=command)
    (exposed,) = STAGES[service].all("EXPOSE")
    pods = [each for each in rendered("cpu-demo").pods if each.component == service]
    ports = {str(entry["containerPort"]) for each in pods for entry in each.container["ports"]}
    assert set(exposed.split()) == ports


def test_base_images_are_pinned() -> None:
    for stage in STAGES.values():
        base = ARGUMENTS.get(stage.base.removeprefix("${").removesuffix("}"), stage.base)
        assert base in {"scratch", *STAGES} or re.fullmatch(BASE, base)


@pytest.mark.parametrize("service", ["frontend", "worker"])
def test_the_demo_model_is_where_the_rehearsal_says(service: str) -> None:
    copies = [copy.split() for copy in STAGES[service].all("COPY")]
    assert {
        target: ROOT / source for source, target in (copy for copy in copies if len(copy) == 2)
    } == IMAGE_PATHS
    assert (DEMO_MODEL / "model.safetensors").exists()


def test_the_context_has_what_is_copied() -> None:
    """.dockerignore leaves out everything but what it names."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    kept = [line.removeprefix("!") for line in lines if line.startswith("!")]
    copied = {
        source.partition("/")[0]
        for stage in STAGES.values()
        for copy in stage.all("COPY")
        if "--from=" not in copy
        for source in copy.split()[:-1]
    }
    assert copied == set(kept)
    assert all((ROOT / name).exists() for name in kept)
