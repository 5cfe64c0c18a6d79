"""The import rules of docs/design.md, section 11: read from the source, nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SERVICES = ("frontend_svc", "scheduler_svc", "worker_svc")
PACKAGES = ("signalbox", *SERVICES)
EDGE_FILES = (
    "*servicer*.py",
    "*link*.py",
    "delta.py",
    "guardian/telling.py",
    "payload.py",
    "step_loop.py",
    "step_items.py",
    "step_inbox.py",
    "step_engine.py",
    "bench*.py",
    "client.py",
    "generation.py",
    "leader.py",
    "grpc_*.py",
    "server.py",
    "worker.py",
    "submission.py",
    "outputs.py",
    "output_logs.py",
    "snapshot.py",
    "board_*.py",
    "explanation_*.py",
    "vllm_*.py",
    "commands/status.py",
    "commands/bench*",
)
"""Where the protocol's messages may be touched."""


def sources(package: str) -> list[Path]:
    """Source files of a package, without the generated ones."""
    files = sorted((ROOT / package).rglob("*.py"))
    return [path for path in files if not {"v1", "vllm"} & set(path.parts)]


def imports(path: Path) -> Iterator[str]:
    """Full names of what a file imports, those inside functions and `if` included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide what they name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def offenders(files: list[Path], forbidden: tuple[str, ...]) -> list[str]:
    """`file: import` for each import of a forbidden package or of something in it."""
    prefixes = tuple(f"{name}." for name in forbidden)
    return [
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
        for name in imports(path)
        if f"{name}.".startswith(prefixes)
    ]


def test_the_rules_see_imports(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text("import torch.nn\ndef f():\n    from signalbox.v1 import frontend_pb2\n")
    assert list(imports(path)) == ["torch.nn", "signalbox.v1.frontend_pb2"]
    assert all(sources(package) for package in PACKAGES)


@pytest.mark.parametrize("package", SERVICES)
def test_no_service_imports_another(package: str) -> None:
    others = tuple(name for name in SERVICES if name != package)
    assert offenders(sources(package), others) == []


def test_the_common_package_imports_no_service() -> None:
    assert offenders(sources("signalbox"), SERVICES) == []


def test_the_common_package_needs_neither_torch_nor_numpy() -> None:
    assert offenders(sources("signalbox"), ("torch", "numpy", "transformers")) == []


def test_the_frontend_needs_neither_torch_nor_transformers() -> None:
    assert offenders(sources("frontend_svc"), ("torch", "transformers")) == []


def test_the_scheduler_needs_neither_torch_nor_transformers() -> None:
    assert offenders(sources("scheduler_svc"), ("torch", "transformers", "tokenizers")) == []


@pytest.mark.parametrize("package", ["scheduler_svc/core", "worker_svc/core"])
def test_cores_know_no_network(package: str) -> None:
    assert offenders(sources(package), ("grpc", "asyncio", "signalbox.v1")) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_messages_stay_at_the_edge(package: str) -> None:
    inner = [path for path in sources(package) if not is_edge(path.relative_to(ROOT / package))]
    assert offenders(inner, ("signalbox.v1", "signalbox.vllm")) == []


def is_edge(path: Path) -> bool:
    """A pattern with a folder is for the whole path inside the package, one without for the file's name."""
    return any(fnmatch(str(path) if "/" in pattern else path.name, pattern) for pattern in EDGE_FILES)
