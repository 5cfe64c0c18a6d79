"""The chat templates of a model directory, by name, and which of them a conversation takes."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from frontend_svc.templates.chat_template import ChatTemplate
from frontend_svc.templates.conversation import Conversation
from frontend_svc.templates.environment import Now
from frontend_svc.templates.traits import Traits, find_traits
from signalbox.errors import StartupError, UnsupportedError

log = logging.getLogger(__name__)

DEFAULT, TOOL_USE, RAG = "default", "tool_use", "rag"
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class ReadyTemplate:
    """One that can be rendered, and what it does with messages."""

    def __init__(self, template: ChatTemplate) -> None:
        self.template = template
        self._turn_end: str | None = None

    @cached_property
    def traits(self) -> Traits:
        """Found when first asked for, which takes milliseconds."""
        return find_traits(self.template)

    def find_turn_end(self, special_tokens: Collection[str]) -> str:
        """Which of these the template writes behind an assistant's last text; empty: none, or one that stands between
        parts of an answer, too."""
        if self._turn_end is None:
            behind = self.traits.behind_answer.lstrip()
            ends = (token for token in special_tokens if token and behind.startswith(token))
            end = max(ends, key=len, default="")
            self._turn_end = "" if end in self.traits.inside_answer else end
        return self._turn_end


class ChatTemplates:
    """The templates of one model, at least one."""

    def __init__(
        self, sources: Mapping[str, str], special_tokens: Mapping[str, str], now: Now = datetime.now
    ) -> None:
        """A source that is no template is remembered as that: whoever needs it hears of it."""
        self.sources = dict(sources)
        """Texts of the templates, by name."""
        self._ready: dict[str, ReadyTemplate] = {}
        self._broken: dict[str, str] = {}
        for name, source in sources.items():
            try:
                self._ready[name] = ReadyTemplate(ChatTemplate(source, special_tokens, now))
            except StartupError as error:
                self._broken[name] = error.message

    @property
    def variables(self) -> frozenset[str]:
        """Names that any of the templates reads."""
        return frozenset().union(*(ready.template.variables for ready in self._ready.values()))

    @property
    def broken(self) -> Mapping[str, str]:
        """What is wrong, by the template's name."""
        return self._broken

    def choose(self, conversation: Conversation) -> ReadyTemplate:
        """As transformers has it: `tool_use` for tools, else the default; and `rag` for documents.

        Raises UnsupportedError when the one that it takes is not there or is broken.
        """
        name = DEFAULT
        if conversation.tools and TOOL_USE in self.sources:
            name = TOOL_USE
        elif conversation.documents and RAG in self.sources:
            name = RAG
        if name in self._ready:
            return self._ready[name]
        if name in self._broken:
            raise UnsupportedError(self._broken[name], field=conversation.path)
        names = ", ".join(sorted(self.sources))
        raise UnsupportedError(
            f"the model has chat templates for {names} only, and none for this conversation",
            field=conversation.path,
        )


def load_chat_templates(directory: Path, config: Mapping[str, Any]) -> ChatTemplates | None:
    """The templates of a model directory whose tokenizer_config.json is `config`; None: there are none."""
    sources = _of_files(directory) or _of_value(config.get("chat_template")) or _of_json(directory)
    if not sources:
        return None
    templates = ChatTemplates(sources, read_special_tokens(directory, config))
    for name, sentence in templates.broken.items():
        log.warning("the model's chat template %r cannot be used: %s", name, sentence)
    return templates


def load_given_template(file: Path, directory: Path, config: Mapping[str, Any]) -> ChatTemplates:
    """The template of `file` instead of the model's own. Raises StartupError when it cannot be used."""
    try:
        source = file.read_text()
    except (OSError, ValueError) as error:
        raise StartupError(f"cannot read the chat template {file}: {error}") from None
    templates = ChatTemplates({DEFAULT: source}, read_special_tokens(directory, config))
    for sentence in templates.broken.values():
        raise StartupError(f"{file}: {sentence}")
    return templates


def read_special_tokens(directory: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """What templates may name; a token that the model has not is left out. An older model has some of them in
    special_tokens_map.json only."""
    older = _read_json(directory / "special_tokens_map.json")
    tokens = {name: special_token(config, name) or special_token(older, name) for name in SPECIAL_TOKENS}
    return {name: token for name, token in tokens.items() if token}


def special_token(config: Mapping[str, Any], name: str) -> str:
    """`config[name]`, which is a string or an object with `content`; empty when there is none."""
    value = config.get(name)
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def _of_files(directory: Path) -> dict[str, str]:
    """chat_template.jinja and additional_chat_templates/*.jinja."""
    sources = {path.stem: path for path in sorted((directory / "additional_chat_templates").glob("*.jinja"))}
    if (path := directory / "chat_template.jinja").is_file():
        sources[DEFAULT] = path
    return {name: _read_text(path) for name, path in sources.items()}


def _of_value(value: Any) -> dict[str, str]:
    """One template, or a list of named ones."""
    if isinstance(value, str):
        return {DEFAULT: value}
    items = value if isinstance(value, list) else []
    named = {item.get("name"): item.get("template") for item in items if isinstance(item, dict)}
    return {name: text for name, text in named.items() if isinstance(name, str) and isinstance(text, str)}


def _of_json(directory: Path) -> dict[str, str]:
    """chat_template.json, which is a processor's."""
    return _of_value(_read_json(directory / "chat_template.json").get("chat_template"))


def _read_json(path: Path) -> dict[str, Any]:
    """Empty when the file is not there."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(_read_text(path))
    except ValueError as error:
        raise StartupError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise StartupError(f"{path} is not a JSON object")
    return value


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError) as error:
        raise StartupError(f"cannot read {path}: {error}") from None
