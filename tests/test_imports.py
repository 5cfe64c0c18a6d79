"""The import rules of docs/architecture.md: read from the source, nothing is imported."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tools import packages
from tools.packages import PRODUCT, SERVICES
from tools.structure.circles import circles
from tools.structure.imports import top_level_graph
from tools.structure.sources import read_modules

ROOT = Path(__file__).resolve().parent.parent
EDGES = (
    "*links/*",
    "*servicer.py",
    "transfer/channels/*",
    "transfer/control/*",
    "api/grpc/*",
    "api/vllm/*",
    "admin/*",
    "board/*",
    "benchmarks/*",
    "cli/admin_client.py",
    "cli/explanation_view.py",
    "cli/commands/service/status.py",
    "guardian/telling.py",
    "ranks/*",
    "relay/*",
    "steps/*",
    "step_loop.py",
    "lease/*_link.py",
    "protocol/generation.py",
    "protocol/parts/*",
    "client.py",
    "server.py",
    "worker.py",
)
"""Where the protocol's messages may be touched: patterns for paths inside a package."""
GENERATED = {ROOT / folder for folder in packages.GENERATED}
BENCHMARKS = "signalbox.benchmarks"
ARRAYS = ROOT / "signalbox" / "protocol" / "arrays.py"
"""For scheduler and worker, which have numpy; nothing else of the common package imports it."""


def sources(package: str) -> list[Path]:
    """Source files of a package, without the generated ones."""
    return [path for path in sorted((ROOT / package).rglob("*.py")) if path.parent not in GENERATED]


def common() -> list[Path]:
    """Source files of the common package, without the benches: those reach into the services that they measure."""
    return [path for path in sources("signalbox") if "benchmarks" not in path.parts]


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
    assert all(sources(package) for package in PRODUCT)


@pytest.mark.parametrize("package", SERVICES)
def test_no_service_imports_another(package: str) -> None:
    others = tuple(name for name in SERVICES if name != package)
    assert offenders(sources(package), others) == []


def test_the_common_package_imports_no_service() -> None:
    assert offenders(common(), SERVICES) == []


def test_the_common_package_needs_neither_torch_nor_numpy() -> None:
    files = [path for path in common() if path != ARRAYS]
    assert offenders(files, ("torch", "numpy", "transformers", "signalbox.protocol.arrays")) == []


def test_records_of_parts_load_no_message() -> None:
    """PT6: cores import them."""
    code = "import sys, signalbox.protocol.parts.codecs; sys.exit('signalbox.v1' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_frontend_needs_no_numpy() -> None:
    """Its image has none; what it shares with the others is either without, or not for it."""
    assert offenders(sources("frontend_svc"), ("numpy", "signalbox.protocol.arrays")) == []


@pytest.mark.parametrize("package", SERVICES)
def test_no_service_needs_the_command_line_or_the_benches(package: str) -> None:
    assert offenders(sources(package), ("signalbox.cli", BENCHMARKS)) == []


@pytest.mark.parametrize("package", PRODUCT)
def test_no_package_needs_what_runs_from_a_checkout(package: str) -> None:
    assert offenders(sources(package), ("benchmarks", "tools", "tests")) == []


def test_only_the_command_for_benches_knows_them() -> None:
    command = ROOT / "signalbox" / "cli" / "commands" / "bench.py"
    assert offenders([path for path in common() if path != command], (BENCHMARKS,)) == []


def test_the_frontend_needs_neither_torch_nor_transformers() -> None:
    assert offenders(sources("frontend_svc"), ("torch", "transformers")) == []


def test_the_scheduler_needs_neither_torch_nor_transformers() -> None:
    assert offenders(sources("scheduler_svc"), ("torch", "transformers", "tokenizers")) == []


@pytest.mark.parametrize("package", ["scheduler_svc/core", "worker_svc/core"])
def test_cores_know_no_network(package: str) -> None:
    assert offenders(sources(package), ("grpc", "asyncio", "signalbox.v1")) == []


@pytest.mark.parametrize("package", PRODUCT)
def test_messages_stay_at_the_edge(package: str) -> None:
    inner = [path for path in sources(package) if not is_edge(path.relative_to(ROOT / package))]
    assert offenders(inner, ("signalbox.v1", "signalbox.vllm")) == []


@pytest.mark.parametrize("package", PRODUCT)
def test_every_folder_is_a_package(package: str) -> None:
    folders = {path.parent for path in sources(package)}
    assert [
        str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists()
    ] == []


def test_imports_make_no_circle() -> None:
    """Those for type checking included: two files that name each other are one."""
    assert circles(top_level_graph(read_modules(ROOT), for_types=True)) == []


def is_edge(path: Path) -> bool:
    """Whether a file, by its path inside its package, belongs to the edge."""
    return any(fnmatch(str(path), pattern) for pattern in EDGES)
