"""A virtual environment of the SDKs' own: they bring 80 packages, some in versions that ours would not like."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.contract.agents.binaries import WANTED
from tests.downloads import CACHE

REQUIREMENTS = Path(__file__).parent / "requirements.txt"
"""All packages in their versions: openai-agents, langchain-openai, langchain-anthropic, litellm and what they need."""
INSTALL_TIMEOUT_S = 900


def get_python() -> Path:
    """Its interpreter, from the cache if it is there. Skips the test that asks where it is not to be had."""
    seed = REQUIREMENTS.read_bytes() + sys.version.encode()
    home = CACHE / f"sdks-{hashlib.sha256(seed).hexdigest()[:16]}"
    if not home.is_dir():
        if not os.environ.get(WANTED):
            pytest.skip(f"the SDKs are not in the cache; with {WANTED}=1 they are installed there (250 MB)")
        _install(home)
    return home / "bin" / "python"


def _install(home: Path) -> None:
    """Into its place at once, as an environment cannot be moved; half of one goes again."""
    try:
        venv.create(home, with_pip=True)
        pip = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps"]
        done = subprocess.run(
            [*pip, "-r", REQUIREMENTS], capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
        )
        if done.returncode:
            pytest.skip(f"the SDKs cannot be installed: {done.stderr[-300:]}")
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise
