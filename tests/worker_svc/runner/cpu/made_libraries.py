"""Libraries of the kernels as they are shipped, each compiled once for these sources (half a minute of a core) and kept
between runs, whichever processes ask for it."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.downloads import CACHE
from worker_svc.runner.cpu.native import build
from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.native.library import open_shipped
from worker_svc.runner.cpu.shipped import make
from worker_svc.runner.cpu.shipped.isas import Isa
from worker_svc.runner.cpu.shipped.manifest import Manifest, entry_of, library_path


def folder_of_libraries(isas: Sequence[Isa]) -> Path:
    """A folder with the libraries for `isas`, as a wheel would have it."""
    compiler = build.find_compiler()
    folder = CACHE / "kernels" / build.build_key(compiler) / "-".join(sorted(isa.name for isa in isas))
    folder.mkdir(parents=True, exist_ok=True)
    for isa in isas:
        made, path = _made(isa), library_path(folder, isa.name)
        if not path.exists():
            os.link(made, path)
    version = build.run([compiler, "--version"]).splitlines()[0]
    entries = {isa.name: entry_of(library_path(folder, isa.name)) for isa in isas}
    Manifest(build.source_key(), version, entries).write(folder)
    return folder


def kernels_for(isa: Isa) -> Kernels:
    """The kernels as a CPU of that kind would get them."""
    folder = folder_of_libraries([isa])
    manifest = Manifest(build.source_key(), "", {isa.name: entry_of(library_path(folder, isa.name))})
    return Kernels(open_shipped(folder, isa, manifest))


def _made(isa: Isa) -> Path:
    compiler = make.compiler_for(isa.machine)
    folder = CACHE / "kernels" / build.build_key(compiler)
    folder.mkdir(parents=True, exist_ok=True)
    path = library_path(folder, isa.name)
    with (folder / f"{isa.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.is_file():
            with tempfile.TemporaryDirectory(dir=folder) as directory:
                make.compile_for(isa, compiler, Path(directory))
                library_path(Path(directory), isa.name).rename(path)
    return path
