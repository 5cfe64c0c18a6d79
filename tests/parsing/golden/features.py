"""What is shown of each family: a conversation, and what the model answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from frontend_svc.api.openai.tools import ChosenTool, Tool, Toolbox
from frontend_svc.templates.conversation import Conversation
from tests.parsing.golden.models import Model
from tests.parsing.writers import TOOLS, Call

THOUGHT = "The user wants the weather. I could call weather, so I do."
TEXT = "Let me look.\n\nIt may take a moment."
BONN: Call = ("weather", {"city": "Bonn", "days": 3})
OTHERS: list[Call] = [
    ("write_file", {"path": "a.txt", "content": 'say "hi"\n</parameter> größe 🚂\n'}),
    ("compute", {"values": [1, "a", None], "options": {"k": {"x": True}}, "exact": False, "ratio": 0.5}),
]
NOTHING: Call = ("now", {})
USER = {"role": "user", "content": "How is the weather in Bonn?"}
CALLED: list[dict[str, Any]] = [
    USER,
    {
        "role": "assistant",
        "content": None,
        "reasoning": THOUGHT,
        "tool_calls": [
            {
                "id": "weather00",
                "type": "function",
                "function": {"name": BONN[0], "arguments": json.dumps(BONN[1])},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "weather00", "name": "weather", "content": '{"sky": "clear"}'},
]


@dataclass(frozen=True)
class Feature:
    """A conversation and the answer to it."""

    reasoning: str = ""
    text: str = ""
    calls: Sequence[Call] = ()
    messages: Sequence[dict[str, Any]] = (USER,)
    has_tools: bool = True
    forced: str = ""
    """`required`, or the name of a tool; empty: the model chooses."""
    quotes: bool = False
    """The text has the first call in it, in quotation marks."""
    kept: float = 1.0
    """The share of the answer that comes before it is cut off."""
    closes: bool = True
    """The model writes the end of its reasoning."""

    @property
    def is_whole(self) -> bool:
        """The model ends the answer itself."""
        return self.kept == 1

    def toolbox(self) -> Toolbox:
        tools = [
            Tool.model_validate({"type": "function", "function": {"name": name, "parameters": schema}})
            for name, schema in TOOLS.items()
        ]
        if not self.has_tools:
            return Toolbox([], None, parallel=True)
        return Toolbox(tools, self._choice, parallel=True)

    @property
    def _choice(self) -> Any:
        if self.forced in ("", "required"):
            return self.forced or "auto"
        return ChosenTool.model_validate({"type": "function", "function": {"name": self.forced}})

    def conversation(self) -> Conversation:
        return Conversation(list(self.messages), self.toolbox().for_template())

    def written(self, model: Model, *, within: bool) -> str:
        """What the model writes behind its prompt. within: that has opened the reasoning."""
        family, parts = model.family, []
        is_harmony = family.tools == "openai"
        if self.reasoning and model.reasons:
            begin, end = family.think
            parts += ["" if within else begin, self.reasoning, end if self.closes else "\n"]
        elif within:
            parts.append(family.think[1])
        text = self.text
        if self.quotes:
            text = f"You would write `{family.write(self.calls)}` for that."
        if text and is_harmony:
            channel = "commentary" if self.calls and not self.quotes else "final"
            end = "<|end|><|start|>assistant" if channel == "commentary" else "<|return|>"
            text = f"<|channel|>{channel}<|message|>{text}{end}"
        parts.append(text)
        if self.calls and not self.quotes:
            parts += ["" if is_harmony or not text else "\n", self._calls(model)]
        written = "".join(parts)
        return written[: int(len(written) * self.kept)]

    def _calls(self, model: Model) -> str:
        if not self.forced or model.family.tools == "openai":
            return model.family.write(self.calls)
        if self.forced != "required":
            return json.dumps(self.calls[0][1])
        return json.dumps([{"name": name, "arguments": arguments} for name, arguments in self.calls])


FEATURES = {
    "chat": Feature(text=TEXT, has_tools=False),
    "reasoning": Feature(THOUGHT, TEXT, has_tools=False),
    "one call": Feature(calls=[BONN]),
    "text and a call": Feature(text=TEXT, calls=[BONN]),
    "parallel calls": Feature(calls=[BONN, *OTHERS]),
    "call behind reasoning": Feature(THOUGHT, calls=[BONN]),
    "call in open reasoning": Feature(THOUGHT, calls=[BONN], closes=False),
    "call without arguments": Feature(calls=[NOTHING]),
    "call that is cut off": Feature(calls=[BONN], kept=0.8),
    "text that quotes a call": Feature(calls=[BONN], quotes=True),
    "after a result": Feature(text="It is clear.", messages=CALLED),
    "forced call": Feature(THOUGHT, calls=[BONN], forced="weather"),
    "required calls": Feature(THOUGHT, calls=[BONN, NOTHING], forced="required"),
}


def features_of(model: Model) -> dict[str, Feature]:
    """Without what the family has not."""
    left_out = set() if model.reasons else {"reasoning", "call behind reasoning", "call in open reasoning"}
    if model.family.tools == "openai":
        left_out.add("call in open reasoning")  # it has messages, and each ends where the next one begins
    if model.family.leads:
        left_out.add("text and a call")
    return {name: feature for name, feature in FEATURES.items() if name not in left_out}
