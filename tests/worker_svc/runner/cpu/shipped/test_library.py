"""Which library is loaded, and what is refused by name: with sources that compile in no time."""

from __future__ import annotations

import json
import logging
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker_svc.runner.cpu.shipped.conftest import HERE, needs_compiler
from worker_svc.runner.cpu.flags import cpu_flags
from worker_svc.runner.cpu.native import build, library, structs
from worker_svc.runner.cpu.shipped import make
from worker_svc.runner.cpu.shipped.isas import runnable
from worker_svc.runner.cpu.shipped.manifest import NAME, entry_of, library_path, read_manifest

SOURCE = """
#include <cstdint>
struct Layout { const char* name; int64_t size, last; };
static const Layout LAYOUTS[] = {LAYOUT {nullptr, 0, 0}};
extern "C" const Layout* signalbox_layouts() { return LAYOUTS; }
extern "C" int answer() {
#ifdef __AVX2__
    return 2;
#else
    return 1;
#endif
}
"""
pytestmark = needs_compiler


def write_source(path: Path, layout: str = "") -> None:
    path.write_text(SOURCE.replace("LAYOUT {", layout + "{"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source, and with the libraries that are shipped of it for this machine."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "source").mkdir()
    write_source(folder / "source" / "kernels.cpp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "SOURCE", folder / "source" / "kernels.cpp")
        make.make(folder / "lib", HERE)
    return folder


@pytest.fixture
def lib(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of shipped libraries of the test's own, which the loader looks into."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(build, "SOURCE", tmp_path / "source" / "kernels.cpp")
    monkeypatch.setattr(structs, "MIRRORS", {})
    monkeypatch.setattr(library, "FOLDER", tmp_path / "lib")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    library.load_library.cache_clear()
    yield tmp_path / "lib"
    library.load_library.cache_clear()


@pytest.fixture
def no_compiler(lib: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "worker_svc")
    return caplog


def answer() -> int | None:
    loaded = library.load_library()
    return None if loaded is None else int(loaded.answer())


def best() -> str:
    return runnable(HERE, cpu_flags())[0].name


def all_paths(folder: Path) -> list[Path]:
    return [library_path(folder, isa.name) for isa in runnable(HERE, cpu_flags())]


@pytest.mark.usefixtures("no_compiler")
def test_the_best_shipped_library_is_loaded_without_a_compiler(log: pytest.LogCaptureFixture) -> None:
    assert answer() is not None
    assert f"shipped ones for {best()}." in log.text
    assert not [record for record in log.records if record.levelno >= logging.WARNING]


def test_nothing_is_compiled_where_the_shipped_one_uses_all(lib: Path, log: pytest.LogCaptureFixture) -> None:
    assert answer() is not None
    assert f"shipped ones for {best()}." in log.text
    assert not (lib.parent / "cache").exists()


def forget_all_but_the_plainest(folder: Path) -> str:
    """As if this CPU had something that none of the libraries uses; the name of the one that is left."""
    *better, plain = runnable(HERE, cpu_flags())
    told = json.loads((folder / NAME).read_text())
    for isa in better:
        del told["libraries"][isa.name]
    (folder / NAME).write_text(json.dumps(told))
    return plain.name


needs_avx2 = pytest.mark.skipif("avx2" not in cpu_flags(), reason="this CPU has nothing that could be used")


@needs_avx2
def test_a_better_one_is_compiled_where_that_can_be_done(lib: Path, log: pytest.LogCaptureFixture) -> None:
    forget_all_but_the_plainest(lib)
    assert answer() == 2
    assert "compiled for this CPU" in log.text


@needs_avx2
@pytest.mark.usefixtures("no_compiler")
def test_a_worse_one_is_better_than_none(lib: Path, log: pytest.LogCaptureFixture) -> None:
    name = forget_all_but_the_plainest(lib)
    assert answer() == 1
    assert f"shipped ones for {name}, which make no use of" in log.text
    assert "avx2" in log.text and "no C++ compiler" in log.text


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("damage", ["cut off", "a bit changed"])
def test_a_damaged_library_is_refused_and_the_next_one_taken(
    lib: Path, log: pytest.LogCaptureFixture, damage: str
) -> None:
    """Cut off, it would end the process when it is mapped; with a bit changed, it would compute something else."""
    first, second, *others = all_paths(lib)
    words = {"cut off": "has 5000 bytes instead of", "a bit changed": "is not the library that was made"}
    _damage(first, damage)
    (other,) = words.keys() - {damage}
    if others:  # some CPUs run two only
        _damage(second, other)
    assert answer() is not None
    assert f"kernels for {best()} are refused: {first} {words[damage]}" in log.text
    assert not others or f"{second} {words[other]}" in log.text


def _damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content[:5000] if how == "cut off" else content)


@pytest.mark.usefixtures("no_compiler")
def test_a_library_that_is_gone_is_refused(lib: Path, log: pytest.LogCaptureFixture) -> None:
    for path in all_paths(lib):
        path.unlink()
    assert answer() is None
    assert f"kernels for {best()} are refused" in log.text
    assert "six to eleven times as long" in log.text


def test_libraries_of_other_sources_are_refused_and_new_ones_compiled(
    lib: Path, log: pytest.LogCaptureFixture
) -> None:
    """What a developer has changed is what runs."""
    build.SOURCE.write_text('extern "C" int answer() { return 43; }\n')
    assert answer() == 43
    assert f"refused: those in {lib} were made of other sources" in log.text


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"sources": "x"}', '{"libraries": {"a": 1}}'])
def test_a_manifest_that_cannot_be_read_is_no_obstacle(
    lib: Path, log: pytest.LogCaptureFixture, content: str
) -> None:
    (lib / NAME).write_text(content)
    assert answer() is not None
    assert f"kernels are refused: {lib / NAME} cannot be read" in log.text


def ship(folder: Path, content: bytes) -> None:
    """Puts other content in the place of all libraries, with a manifest that fits."""
    manifest = read_manifest(folder)
    assert manifest is not None
    for path in all_paths(folder):
        path.write_bytes(content)
    libraries = {isa.name: entry_of(library_path(folder, isa.name)) for isa in runnable(HERE, cpu_flags())}
    type(manifest)(manifest.sources, manifest.compiler, libraries).write(folder)


def test_what_is_no_library_of_ours_is_refused(
    lib: Path, log: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Text, and a library that has none of our functions."""
    other = tmp_path / "other.cpp"
    other.write_text('extern "C" int other() { return 7; }\n')
    build.run([build.find_compiler(), "-shared", "-fPIC", str(other), "-o", str(tmp_path / "other.so")])
    for content in (b"no library at all", (tmp_path / "other.so").read_bytes()):
        ship(lib, content)
        library.load_library.cache_clear()
        log.clear()
        assert answer() is not None
        assert f"kernels for {best()} are refused" in log.text
        assert "compiled for this CPU" in log.text


def test_a_library_with_other_structs_is_refused(
    lib: Path, log: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls would be misread."""
    write_source(tmp_path / "wider.cpp", '{"Attention", 4096, 4088},')
    build.run(
        [
            build.find_compiler(),
            "-shared",
            "-fPIC",
            str(tmp_path / "wider.cpp"),
            "-o",
            str(tmp_path / "wider.so"),
        ]
    )
    ship(lib, (tmp_path / "wider.so").read_bytes())
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert answer() is None
    assert "struct Attention of the native kernels" in log.text


def test_a_checkout_ships_nothing(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    assert library.load_shipped(tmp_path, cpu_flags()) is None
    assert not log.records


@pytest.mark.usefixtures("lib")
def test_libraries_of_another_kind_of_machine_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert library.load_shipped(library.FOLDER, cpu_flags()) is None
