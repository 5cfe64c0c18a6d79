"""Compiles kernels.cpp at first start, in half a minute, and keeps the library in the user's cache directory."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

SOURCE = Path(__file__).parent / "kernels.cpp"
NATIVE = "-march=native"
OPTIONS = (
    "-O3",
    NATIVE,
    "-std=c++20",
    "-fopenmp",
    "-shared",
    "-fPIC",
    "-fno-math-errno",
    "-Wno-psabi",
)
BUILD_TIMEOUT_S = 600
"""Half a minute of a core; a machine that starts many things at once may take long for that."""
LOOK_S = 0.1
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class BuildError(Exception):
    """The kernels could not be built; the message says why."""


def open_compiled() -> ctypes.CDLL:
    """The library for this source, compiler and CPU; compiles it if it is not there yet."""
    compiler = find_compiler()
    try:
        path = built_library(compiler)
    except OSError:  # not ours alone: built for this process, which needs no file once it is loaded
        with tempfile.TemporaryDirectory(prefix="signalbox-kernels-") as directory:
            path = Path(directory) / "kernels.so"
            compile_to(path, compiler)
            return ctypes.CDLL(str(path))
    return ctypes.CDLL(str(path))


def built_library(compiler: str) -> Path:
    """Its path in the cache directory, where it is now. OSError if it cannot be written there, or if somebody else
    could have: what is loaded runs as this process does."""
    directory = cache_directory()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_owner(directory)
    path = directory / f"kernels-{build_key(compiler)}.so"
    if not path.is_file():
        with one_builder(path):
            if not path.is_file():
                compile_to(path, compiler)
    check_owner(path)
    return path


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def one_builder(path: Path) -> Iterator[None]:
    """Processes that start together, as the workers of a ring do, compile `path` once: the others wait for it, as long
    as a build may take.

    A lock whose file is gone keeps nobody out, nor does one that a stopped process holds; then two compile the same, as
    they may.
    """
    lock = path.with_suffix(".lock")
    give_up = time.monotonic() + BUILD_TIMEOUT_S
    with lock.open("w") as file:
        while not _try_lock(file) and time.monotonic() < give_up:
            time.sleep(LOOK_S)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def check_owner(path: Path) -> None:
    """PermissionError if anybody but this user and root may write there."""
    status = path.stat()
    if status.st_uid not in (os.geteuid(), 0) or status.st_mode & OTHERS_WRITE:
        raise PermissionError(f"{path} can be written by others")


def find_compiler() -> str:
    """The C++ compiler: $CXX or g++. BuildError if there is none."""
    compiler = shutil.which(os.environ.get("CXX") or "g++")
    if compiler is None:
        raise BuildError("there is no C++ compiler")
    return compiler


def has_compiler() -> bool:
    """Whether anything can be compiled here."""
    try:
        find_compiler()
    except BuildError:
        return False
    return True


def cache_directory() -> Path:
    """Where compiled kernels are kept. OSError if the user has no such directory."""
    # Where kernels are compiled to be shipped, nothing else of ours is there.
    from signalbox.errors import StartupError  # noqa: PLC0415
    from signalbox.runtime.start.user_dirs import cache_dir  # noqa: PLC0415

    try:
        return cache_dir()
    except StartupError as error:
        raise FileNotFoundError(error.message) from error


def build_key(compiler: str, *others: str) -> str:
    """Changes with all that the machine code depends on, and with what `others` say."""
    version = run([compiler, "--version"])
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.is_file() else []
    flags = [line for line in lines if line.startswith(("flags", "Features"))]  # of x86 and of ARM
    parts = [*source_texts(), version, platform.machine(), *flags[:1], *OPTIONS, *others]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def source_key() -> str:
    """Changes with the sources and the options."""
    return hashlib.sha256("\0".join([*source_texts(), *OPTIONS]).encode()).hexdigest()


def source_texts() -> list[str]:
    """The sources, in one order."""
    return [source.read_text() for source in source_files()]


def source_files() -> list[Path]:
    """kernels.cpp and all that it includes, in its folder and in those below."""
    return sorted((*SOURCE.parent.rglob("*.h"), SOURCE))


def compile_to(path: Path, compiler: str) -> None:
    """Writes the library to `path` in one piece, so that processes that start together do not meet a half of it."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="build-") as directory:
        built = Path(directory) / path.name
        run([compiler, *OPTIONS, str(SOURCE), "-o", str(built)])
        built.chmod(0o755)
        built.replace(path)


def run(command: list[str], timeout_s: float = BUILD_TIMEOUT_S) -> str:
    """What the command prints. BuildError if it fails."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or ["no message"]
        raise BuildError(f"{command[0]} failed: {lines[0]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{command[0]} failed: {error}") from error
    return done.stdout
