"""The agents themselves, as npm has them: one executable each."""

from __future__ import annotations

import os
import platform
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.downloads import CACHE, fetch

WANTED = "SIGNALBOX_AGENTS"
"""Set: agents that are not in the cache are fetched."""
NPM = "https://registry.npmjs.org/"


@dataclass(frozen=True)
class Binary:
    """An executable within a package for Linux on x86-64."""

    url: str
    sha256: str
    member: str
    megabytes: int
    """Of the package."""

    def get(self) -> Path:
        """The executable, from the cache if it is there. Skips the test that asks where it is not to be had."""
        path = CACHE / self.sha256 / Path(self.member).name
        if path.is_file():
            return path
        if (sys.platform, platform.machine()) != ("linux", "x86_64"):
            pytest.skip("the agents' executables are for Linux on x86-64")
        if not os.environ.get(WANTED):
            pytest.skip(f"an agent of {self.megabytes} MB is not in the cache; with {WANTED}=1 it is fetched")
        package = fetch(self.url, self.sha256)
        part = path.with_suffix(f".{os.getpid()}")
        with tarfile.open(package) as archive:
            source = archive.extractfile(self.member)
            assert source is not None
            part.write_bytes(source.read())
        part.chmod(0o755)
        part.rename(path)
        package.unlink()
        return path


CODEX = Binary(
    NPM + "@openai/codex/-/codex-0.169.0-linux-x64.tgz",
    "89801b4b97faba562eb80fe0a833159ac79399be674022f4b1a0ccab1d153faa",
    "package/vendor/x86_64-unknown-linux-musl/bin/codex",
    167,
)
"""OpenAI's Codex (Apache-2.0)."""
CLAUDE_CODE = Binary(
    NPM + "@anthropic-ai/claude-code-linux-x64/-/claude-code-linux-x64-2.1.330.tgz",
    "40ff30c5768723958032132065e6fcdd1e2dc3a2b3ff9a0bf36c6620ef1c40ef",
    "package/claude",
    175,
)
"""Anthropic's Claude Code (all rights reserved): it is run, and nothing of it is kept in this tree."""
