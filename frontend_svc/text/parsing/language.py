"""The language of a model: which of its outputs are reasoning, text and calls. Makes the parser of each output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from frontend_svc.text.parsing import harmony
from frontend_svc.text.parsing.call_reader import MakeReader
from frontend_svc.text.parsing.context import Context, Tools
from frontend_svc.text.parsing.emitter import Emitter, make_call_id
from frontend_svc.text.parsing.families import HARMONY, REASONING, TOOLS, ToolFamily
from frontend_svc.text.parsing.parser import OutputParser, TaggedParser
from frontend_svc.text.parsing.reasoning import ReasoningTags
from frontend_svc.text.parsing.tools.tagged_json import ListReader, NamedReader

NO_TOOLS: Tools = {}


class Calls(Enum):
    """How calls are written."""

    AUTO = auto()
    """In the model's own way, where it wants to call."""
    FIRST = auto()
    """In the model's own way, in front of all: an output that begins otherwise is an answer, which may quote them."""
    LISTED = auto()
    """As one array of JSON and nothing else: a grammar has it so."""
    NAMED = auto()
    """There is one tool, and its arguments are all that is written: a grammar has it so."""


@dataclass(frozen=True)
class ParserPlan:
    """How one request's outputs are to be parsed."""

    tags: Mapping[int, str]
    """Tokens that are tags."""
    kept: Mapping[int, str]
    """Special tokens that are text."""
    make: Callable[[], OutputParser]
    """A parser for one output."""


@dataclass(frozen=True, eq=False)
class Language:
    """Families of a model, and its vocabulary's tokens for their tags. There is one of a model: what is made of it is
    remembered by it."""

    reasoning: str = ""
    """Name of a family; empty: the model is not known to reason."""
    tools: str = ""
    """Name of a family; empty: no calls can be found in what it writes."""
    token_ids: Mapping[str, int] = field(default_factory=dict)
    """Added tokens of the vocabulary by their text."""
    words: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Tokens of the words of harmony's headers; empty for all other models."""

    @property
    def is_harmony(self) -> bool:
        """One parser for both."""
        return self.tools == HARMONY or self.reasoning == "openai_gptoss"

    @property
    def reasoning_tags(self) -> ReasoningTags | None:
        """Marks around reasoning; None: there are none."""
        return REASONING[self.reasoning] if self.reasoning else None

    def opens_reasoning(self, prompt: str, continued: str = "") -> bool:
        """Whether a rendered prompt ends within reasoning. `continued` is the text of the message that the model is to
        write on; empty: it begins one."""
        tags = self.reasoning_tags
        if tags is None:
            return False
        if continued.rfind(tags.begin) > continued.rfind(tags.end):
            return True
        end = prompt.rstrip()
        if end.endswith((tags.begin, (tags.begin + tags.label).rstrip())):
            return True
        return tags.is_implied and not continued and not end.endswith(tags.end)

    def plan(
        self,
        prompt: str,
        tools: Tools,
        *,
        calls: Calls = Calls.AUTO,
        reasons: bool | None = None,
        max_calls: int = 0,
        is_bound: bool = False,
    ) -> ParserPlan | None:
        """For a rendered prompt and the tools that may be called; None: nothing but text is to be expected.

        reasons: whether the prompt ends within reasoning; None: as the prompt looks. max_calls: see Emitter.
        is_bound: by a grammar.
        """
        within = self.opens_reasoning(prompt) if reasons is None else reasons
        if self.is_harmony:
            return self._plan(harmony.TAGS, (), lambda texts: self._make_harmony(tools, texts, max_calls))
        family = TOOLS[self.tools] if self.tools and tools and calls in (Calls.AUTO, Calls.FIRST) else None
        make_reader = _reader_of(calls, family) if tools else None
        tags = self.reasoning_tags
        if tags is None and make_reader is None:
            return None
        marks: tuple[str, ...] = (tags.begin, tags.end) if tags is not None else ()
        if make_reader is not None:
            marks += tuple(make_reader(Context(tools)).tags)
        make_id = family.make_id if family is not None else make_call_id

        def make(texts: tuple[str, ...]) -> OutputParser:
            context = Context(tools, Emitter(make_id, max_calls))
            return TaggedParser(
                context,
                texts,
                tags,
                make_reader,
                starts_in_reasoning=within,
                is_bound=is_bound,
                answers_plainly=calls is Calls.FIRST,
            )

        return self._plan(marks, family.kept if family else (), make)

    def _make_harmony(self, tools: Tools, texts: tuple[str, ...], max_calls: int) -> OutputParser:
        return harmony.HarmonyParser(Context(tools, Emitter(max_calls=max_calls)), texts)

    def _plan(
        self,
        marks: tuple[str, ...],
        kept: tuple[str, ...],
        make: Callable[[tuple[str, ...]], OutputParser],
    ) -> ParserPlan:
        tokens = {self.token_ids[mark]: mark for mark in marks if mark in self.token_ids}
        texts = tuple(mark for mark in dict.fromkeys(marks) if mark not in self.token_ids)
        return ParserPlan(
            tokens,
            {self.token_ids[mark]: mark for mark in kept if mark in self.token_ids},
            lambda: make(texts),
        )


def _reader_of(calls: Calls, family: ToolFamily | None) -> MakeReader | None:
    if calls is Calls.LISTED:
        return ListReader
    if calls is Calls.NAMED:
        return NamedReader
    return family.make if family is not None else None
