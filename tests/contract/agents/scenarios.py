"""Tasks that agents are given, and what the model says to them: they are run, recorded and played again."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.contract.agents.agents import Agent, ClaudeCode, Codex
from tests.contract.agents.scripted import Script, think, write_call

NOTES = "the answer is 42\n"
TURN = "<|im_start|>assistant"
ASKED = "<|im_start|>user"
"""Begin each turn of the model's and of the user's in a prompt of Qwen3."""
PLACE = "PLACE"
"""Stands in what the model says for the folder that the agent works in."""
CODEX_PATCH = """apply_patch <<'EOF'
*** Begin Patch
*** Update File: notes.txt
@@
-the answer is 42
+the answer is 43
*** End Patch
EOF"""


@dataclass(frozen=True)
class Scenario:
    """One conversation."""

    agent: Callable[[Path, str], Agent]
    runs: Sequence[Sequence[str]]
    """Arguments of each run of the agent; later ones go on with the conversation."""
    turns: Sequence[str]
    """What the model says, turn by turn."""
    said: Sequence[str]
    """The agent's last words of each run."""
    notes: str = NOTES
    """What the file that it works on holds at the end."""
    asides: Mapping[str, str] = field(default_factory=dict)
    """What the model says to others than the agent itself, by what these were told."""

    def script(self, place: Path) -> Script:
        """Says the turns in order: a prompt tells how many there were. Further ones are as the last."""

        def say(prompt: str) -> str:
            last = prompt[prompt.rindex(ASKED) :]
            for told, answer in self.asides.items():
                if told in last:
                    return answer
            turn = min(prompt.count(TURN), len(self.turns)) - 1
            return self.turns[turn].replace(PLACE, str(place))

        return say


LOOK = write_call("exec_command", cmd="cat notes.txt")
BASH = write_call("Bash", command="cat notes.txt", description="Shows the notes")
FOLLOWED = (think("That is in a file."), think("There it is.") + "They say 42.", "The double is 84.")
RECORDED = (
    "codex_loop", "codex_image", "codex_namespace",
    "claude_loop", "claude_image", "claude_search", "claude_compact", "claude_count",
)  # fmt: skip
"""Names of those that are kept; the others are like them on the wire."""
SCENARIOS = {
    "codex_loop": Scenario(
        Codex,
        [["What do the notes say?"], ["resume", "--last", "And the double?"]],
        [FOLLOWED[0] + LOOK, *FOLLOWED[1:]],
        ["They say 42.", "The double is 84."],
    ),
    "codex_two_calls": Scenario(
        Codex,
        [["Show the notes and the folder."]],
        [f"Both.\n{LOOK}\n{write_call('exec_command', cmd='ls')}", "Shown."],
        ["Shown."],
    ),
    "codex_patch": Scenario(
        Codex,
        [["-c", "model_reasoning_effort=high", "Make it 43."]],
        [write_call("exec_command", cmd=CODEX_PATCH), "It is 43."],
        ["It is 43."],
        notes=NOTES.replace("42", "43"),
    ),
    "codex_image": Scenario(
        Codex,
        [["What is in the picture?"]],
        [write_call("view_image", path=f"{PLACE}/picture.png"), "That cannot be seen here."],
        ["That cannot be seen here."],
    ),
    "codex_namespace": Scenario(
        Codex,
        [["Have somebody else say hi."]],
        [write_call("multi_agent_v1__spawn_agent", message="Say hi."), "Somebody does."],
        ["Somebody does."],
        asides={"Say hi.": "Hi."},
    ),
    "claude_loop": Scenario(
        ClaudeCode,
        [["What do the notes say?"], ["--continue", "And the double?"]],
        [FOLLOWED[0] + BASH, *FOLLOWED[1:]],
        ["They say 42.", "The double is 84."],
    ),
    "claude_edit": Scenario(
        ClaudeCode,
        [["Make it 43."]],
        [
            write_call("Read", file_path=f"{PLACE}/notes.txt"),
            write_call("Edit", file_path=f"{PLACE}/notes.txt", old_string="42", new_string="43"),
            "It is 43.",
        ],
        ["It is 43."],
        notes=NOTES.replace("42", "43"),
    ),
    "claude_image": Scenario(
        ClaudeCode,
        [["What is in the picture?"]],
        [write_call("Read", file_path=f"{PLACE}/picture.png"), "That cannot be seen here."],
        ["That cannot be seen here."],
    ),
    "claude_search": Scenario(
        ClaudeCode,
        [["Which tool edits notebooks?"]],
        [write_call("ToolSearch", query="select:NotebookEdit", max_results=5), "NotebookEdit."],
        ["NotebookEdit."],
    ),
    "claude_compact": Scenario(
        ClaudeCode,
        [["Say hi."], ["--continue", "/compact"]],
        ["Hi.", "<summary>They said hi.</summary>"],
        ["Hi.", ""],
    ),
    "claude_count": Scenario(ClaudeCode, [["/context"]], [], ["## Context Usage"]),
}


def prepare(work: Path) -> None:
    """The files that the tasks are about."""
    (work / "notes.txt").write_text(NOTES)
    (work / "picture.png").write_bytes(_red_square(8))


def _red_square(side: int) -> bytes:
    rows = zlib.compress((b"\0" + b"\xff\0\0" * side) * side)
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
