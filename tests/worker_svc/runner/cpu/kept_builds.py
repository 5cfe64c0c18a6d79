"""What tests compile, kept between runs: each program is known by what it is made of, and whichever process asks for it
first makes it. The folder may be deleted at any time."""

from __future__ import annotations

import fcntl
import hashlib
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.downloads import CACHE
from worker_svc.runner.cpu.native import build

KERNELS = CACHE / "kernels"


def key_of(command: Iterable[str], *sources: Path) -> str:
    """Changes with the compiler and its version, with its options, and with the kernels' sources and `sources`.

    `command` names the compiler first. It may not say `-march=native`: the CPU is not in the key.
    """
    words = list(command)
    assert build.NATIVE not in words
    parts = [*words, build.run([words[0], "--version"]), *build.source_texts()]
    parts += [source.read_text() for source in sources]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """Path of the file `name`; `make` writes it to a path in a folder of its own where it is not there yet."""
    path = KERNELS / name
    if not path.is_file():
        KERNELS.mkdir(parents=True, exist_ok=True)
        with (KERNELS / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.is_file():
                with tempfile.TemporaryDirectory(dir=KERNELS) as folder:
                    make(Path(folder) / name)
                    (Path(folder) / name).replace(path)
    return path


def kept_program(command: list[str], source: Path) -> Path:
    """Path of the program that `command` builds from `source`, which may include the kernels' headers. Raises
    BuildError."""
    words = [*command, f"-I{build.SOURCE.parent}"]
    key = key_of(command, source)
    return kept(f"{source.stem}-{key}", lambda path: _compile([*words, str(source), "-o", str(path)]))


def _compile(command: list[str]) -> None:
    build.run(command)
