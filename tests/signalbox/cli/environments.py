"""Machines that are not as a developer's: what a command is started with, and where."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SIGNALBOX = str(Path(sys.executable).parent / "signalbox")
"""The installed command."""
NAMELESS = ("unshare", "--user", "--map-user=12345", "--map-group=12345")
"""Before a command: its user has no entry in the table of users."""
OWN_MOUNTS = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec")
"""Before a script: what it mounts is there for itself."""


def can_unshare() -> bool:
    """Whether this machine lets us have such a user and such mounts."""
    try:
        done = subprocess.run([*OWN_MOUNTS, "mount -t tmpfs none /mnt"], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


def homeless(**more: str) -> dict[str, str]:
    """An environment that names no home directory, nor a place for caches or state."""
    ours = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return ours | more


def hostile_directory(folder: Path) -> Path:
    """A working directory with a file for each module that ours might import; each, when it is run, leaves its name in
    `folder`/ran."""
    here = folder / "here"
    here.mkdir(parents=True)
    others = (
        "torch numpy grpc google pydantic pydantic_settings starlette uvicorn httpx rich orjson tokenizers"
    )
    others += " transformers safetensors llguidance jinja2 prometheus_client pythonjsonlogger regex yaml"
    ours = "frontend_svc scheduler_svc worker_svc signalbox"
    for name in {*sys.stdlib_module_names, *others.split(), *ours.split()}:
        leave_name = f"open({str(folder / 'ran')!r}, 'a').write('{name}\\n')\n"
        (here / f"{name}.py").write_text(f"{leave_name}raise ImportError('not from here')\n")
    return here
