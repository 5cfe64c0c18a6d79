"""The Dockerfile, as far as it can be read without a Docker engine: stages, users, extras, commands."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from signalbox.cli.ring.ring import DEMO_MODEL
from tests.k8s.conftest import rendered
from tools.rehearsal.environment import IMAGE_PATHS
from worker_svc.runner.cpu.shipped.manifest import FOLDER

ROOT = Path(__file__).resolve().parent.parent.parent
SERVICES = ("scheduler", "frontend", "worker")
HEAVY = {"torch", "transformers", "triton"}


@dataclass
class Stage:
    """A `FROM` and the instructions below it."""

    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        return [rest for name, rest in self.instructions if name == word]


def read_instructions(text: str) -> Iterator[tuple[str, str]]:
    """(word, rest) of each instruction, continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


def read_stages() -> tuple[dict[str, str], dict[str, Stage]]:
    """The arguments ahead of all stages, and the stages by name."""
    arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    for word, rest in read_instructions((ROOT / "Dockerfile").read_text()):
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages[name] = Stage(base)
        elif stages:
            list(stages.values())[-1].instructions.append((word, rest))
        else:
            name, _, value = rest.partition("=")
            arguments[name] = value
    return arguments, stages


ARGUMENTS, STAGES = read_stages()


def lineage(name: str) -> list[Stage]:
    """The stage and those it is built on."""
    stage = STAGES[name]
    return [stage, *(lineage(stage.base) if stage.base in STAGES else [])]


def extras_of(service: str) -> set[str]:
    """What pip installs in the stage that the service's environment is copied from."""
    (install,) = (run for run in STAGES[f"{service}-build"].all("RUN") if "'.[" in run)
    match = re.search(r"'\.\[(.+)\]'", install)
    assert match
    return set(match[1].split(","))


def requirements(distribution: str, extras: set[str], seen: set[tuple[str, str]]) -> set[str]:
    """Names of all that `distribution` needs with these extras, read from what is installed here."""
    for text in metadata.requires(distribution) or []:
        requirement = Requirement(text)
        environments = [{"extra": extra} for extra in extras] or [{"extra": ""}]
        if requirement.marker and not any(map(requirement.marker.evaluate, environments)):
            continue
        for extra in {"", *requirement.extras}:
            step = (canonicalize_name(requirement.name), extra)
            if step not in seen:
                seen.add(step)
                requirements(requirement.name, {extra}, seen)
    return {name for name, _ in seen}


@pytest.mark.parametrize("service", SERVICES)
def test_each_image_has_the_extras_of_its_service(service: str) -> None:
    assert extras_of(service) == {service, "telemetry"}
    assert f"--from={service}-build /opt/signalbox /opt/signalbox" in STAGES[service].all("COPY")


@pytest.mark.parametrize("service", SERVICES)
def test_only_the_worker_needs_torch(service: str) -> None:
    needed = requirements("signalbox", extras_of(service), set())
    assert "grpcio" in needed
    assert bool(needed & HEAVY) == (service == "worker")


def test_the_worker_has_compiled_kernels_and_needs_no_compiler() -> None:
    assert any("g++" in command for command in STAGES["kernels"].all("RUN"))
    assert f"--from=kernels /kernels {FOLDER.relative_to(ROOT)}" in STAGES["worker-build"].all("COPY")
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
    assert STAGES["worker-gpu"].base == "worker"
    assert STAGES["worker-gpu"].all("USER")[-1] == STAGES["runtime"].all("USER")[-1]


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
    assert exposed.split() == [str(entry["containerPort"]) for entry in pod.container["ports"]]


def test_base_images_are_pinned() -> None:
    for stage in STAGES.values():
        base = ARGUMENTS.get(stage.base.removeprefix("${").removesuffix("}"), stage.base)
        assert base in {"scratch", *STAGES} or re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+", base)


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
