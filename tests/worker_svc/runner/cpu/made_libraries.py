"""Libraries of the kernels as they are shipped, each compiled once for these sources (half a minute of a core) and kept
between runs, whichever processes ask for it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.worker_svc.runner.cpu.kept_builds import KERNELS, kept, key_of
from worker_svc.runner.cpu.native import build
from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.native.library import open_shipped
from worker_svc.runner.cpu.shipped import make
from worker_svc.runner.cpu.shipped.isas import Isa
from worker_svc.runner.cpu.shipped.manifest import NAME, Manifest, entry_of, library_path


def folder_of_libraries(isas: Sequence[Isa]) -> Path:
    """A folder with the libraries for `isas`, as a wheel would have it."""
    compiler = build.find_compiler()
    made = {isa.name: _made(isa) for isa in isas}
    folder = KERNELS / "-".join(("shipped", *sorted(path.name.rpartition("-")[2] for path in made.values())))
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in made.items():
        with suppress(FileExistsError):
            os.link(path, library_path(folder, name))
    version = build.run([compiler, "--version"]).splitlines()[0]
    entries = {name: entry_of(path) for name, path in made.items()}
    with tempfile.TemporaryDirectory(dir=KERNELS) as own:  # others read it meanwhile
        Manifest(build.source_key(), version, entries).write(Path(own))
        (Path(own) / NAME).replace(folder / NAME)
    return folder


def kernels_for(isa: Isa) -> Kernels:
    """The kernels as a CPU of that kind would get them."""
    folder = folder_of_libraries([isa])
    manifest = Manifest(build.source_key(), "", {isa.name: entry_of(library_path(folder, isa.name))})
    return Kernels(open_shipped(folder, isa, manifest))


def _made(isa: Isa) -> Path:
    compiler = make.compiler_for(isa.machine)
    options = [option for option in build.OPTIONS if option != build.NATIVE]
    key = key_of([compiler, *options, *isa.options], Path(make.__file__))

    def compile_beside(path: Path) -> None:
        make.compile_for(isa, compiler, path.parent)
        library_path(path.parent, isa.name).rename(path)

    return kept(f"{isa.name}-{key}", compile_beside)
