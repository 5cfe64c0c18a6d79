"""Codex and Claude Code as people run them without a terminal, in a home and a folder of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.contract.agents.binaries import CLAUDE_CODE, CODEX
from tests.contract.agents.scripted import MODEL

RUN_TIMEOUT_S = 120
NOWHERE = "http://127.0.0.1:9"
"""A proxy that does not listen: an agent that looks for anybody but the model finds nobody."""
CODEX_CONFIG = """
model = "{model}"
model_provider = "signalbox"
check_for_update_on_startup = false

[model_providers.signalbox]
name = "signalbox"
base_url = "{url}/v1"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1

[analytics]
enabled = false
"""
CLAUDE_SETTINGS = {
    "ANTHROPIC_AUTH_TOKEN": "none",
    "ANTHROPIC_MODEL": MODEL,
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_RETRIES": "1",
}


@dataclass(frozen=True)
class Outcome:
    """What a run of an agent came to."""

    status: int
    said: str
    """On stdout: its last words."""
    log: str
    """On stderr."""


class Agent:
    """One agent against one address; `work` is the folder that it works in."""

    def __init__(self, executable: Path, folder: Path, url: str) -> None:
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        self._executable = executable
        self._home = folder
        self._url = url
        self._environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(folder),
            "TERM": "dumb",
            "HTTP_PROXY": NOWHERE,
            "HTTPS_PROXY": NOWHERE,
            "NO_PROXY": "127.0.0.1",
        }

    async def run(self, *arguments: str) -> Outcome:
        """Runs to its end."""
        raise NotImplementedError

    async def _run(self, arguments: Sequence[str]) -> Outcome:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            self._executable,
            *arguments,
            cwd=self.work,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
        )
        try:
            said, log = await asyncio.wait_for(process.communicate(), RUN_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            said, log = await process.communicate()
        assert process.returncode is not None
        return Outcome(process.returncode, said.decode().strip(), log.decode())


class Codex(Agent):
    """`codex exec`: commands run unasked, as they are those that a test has written."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(CODEX.get(), folder, url)
        (folder / ".codex").mkdir()
        (folder / ".codex" / "config.toml").write_text(CODEX_CONFIG.format(model=MODEL, url=url))

    async def run(self, *arguments: str) -> Outcome:
        return await self._run(
            ["exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", *arguments]
        )


class ClaudeCode(Agent):
    """`claude -p`, allowed to do what tests have it do."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(CLAUDE_CODE.get(), folder, url)
        self._environment |= CLAUDE_SETTINGS | {"ANTHROPIC_BASE_URL": url}

    async def run(self, *arguments: str) -> Outcome:
        return await self._run(["-p", *arguments, "--allowedTools", "Bash(cat:*)", "Edit", "Read"])
