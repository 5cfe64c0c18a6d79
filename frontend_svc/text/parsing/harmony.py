"""gpt-oss: messages with a header each, in channels.

`<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json
<|message|>{...}<|call|>`. What a model gets wrong of that ends no request: a message ends where the next one begins,
and what stands in no message is text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from frontend_svc.text.parsing.context import Context
from frontend_svc.text.parsing.parser import OutputParser
from frontend_svc.text.parsing.pieces import END, End, Item, Tag
from frontend_svc.text.parsing.tape import Reading

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
FINISH, CALL, RETURN, CONSTRAIN = "<|end|>", "<|call|>", "<|return|>", "<|constrain|>"
TAGS = (START, CHANNEL, MESSAGE, FINISH, CALL, RETURN, CONSTRAIN)
WORDS = ("assistant", "analysis", "final", "commentary")
"""Words of headers."""
_HEADER = (START, CHANNEL, CONSTRAIN)
_BODY_ENDS = (FINISH, CALL, RETURN)
_RECIPIENT = re.compile(r"\bto=(\S+)")
_BARE_HEADER = re.compile(r"\s*(assistant)?\s*(to=\S*)?\s*")
MAX_HEADER_CHARS = 512


class HarmonyParser(OutputParser):
    """Reasoning, text and calls are kinds of messages here."""

    def __init__(self, context: Context, text_tags: Collection[str]) -> None:
        super().__init__(context, text_tags)

    def read(self) -> Reading[None]:
        """Reads message after message. The prompt ends with `<|start|>assistant`: the output begins within a header."""
        tape, emit = self._context.tape, self._context.emit
        while True:
            header = yield from self._read_header()
            if header is not None:
                yield from self._read_body(header)
                continue
            item = yield from tape.next()
            if isinstance(item, End):
                emit.end_text()
                return
            if isinstance(item, str):
                emit.text(item)
                yield from self._read_text()

    def _read_header(self) -> Reading[str | None]:
        """All that stands in front of a message; None: what comes is no header, or ends within it."""
        tape = self._context.tape
        header, begun = "", False
        tape.record()
        while True:
            item = yield from tape.next()
            if isinstance(item, Tag):
                if item.text == MESSAGE:
                    tape.recorded()
                    return header
                if item.text in _BODY_ENDS and not begun:
                    header = ""
                    continue
                begun = True
                header += f" {item.text} "
                continue
            if item is END:
                if not begun and (text := tape.recorded().strip()):
                    self._tell_stray(text)
                return None
            header += str(item)
            if len(header) > MAX_HEADER_CHARS or (not begun and not _may_be_header(header)):
                text = tape.recorded()
                self._put_back(text)
                return None

    def _put_back(self, text: str) -> None:
        for tag in TAGS:
            text = text.replace(tag, "")
        if text.strip():
            self._context.tape.back(text.lstrip())

    def _tell_stray(self, text: str) -> None:
        for tag in TAGS:
            text = text.replace(tag, "")
        self._context.emit.text(text)

    def _read_text(self) -> Reading[None]:
        """Text outside of all messages, up to the next tag."""
        while True:
            item = yield from self._context.tape.run()
            if not isinstance(item, str):
                self._context.tape.back(item)
                return
            self._context.emit.text(item)

    def _read_body(self, header: str) -> Reading[None]:
        """One message up to its end, or to where the next one begins."""
        emit = self._context.emit
        name = _function_of(header)
        if name in self._context.tools:
            emit.start(name)
            if (yield from self._pass(emit.arguments)):
                emit.end_call()
            return
        channel = _channel_of(header)
        if channel == "analysis":
            self.in_reasoning = True
            yield from self._pass(emit.reasoning)
            emit.end_reasoning()
            self.in_reasoning = False
        else:
            if emit.last and emit.last != "\n":
                emit.text("\n")
            yield from self._pass(emit.text)

    def _pass(self, tell: Callable[[str], None]) -> Reading[bool]:
        """Whether the message was closed, and not cut off."""
        tape = self._context.tape
        while True:
            item: Item = yield from tape.run()
            if isinstance(item, End):
                return False
            if isinstance(item, str):
                tell(item)
            elif item.text in _BODY_ENDS:
                return True
            elif item.text in (START, CHANNEL):
                tape.back(item)
                return True
            elif item.text not in TAGS:
                tell(item.text)


def _may_be_header(text: str) -> bool:
    """Some longer text might be one: `assistant to=functions.name`."""
    stripped = text.strip()
    return (
        bool(_BARE_HEADER.fullmatch(text))
        or any(word.startswith(stripped) for word in ("assistant", "to="))
        or (stripped.startswith("assistant") and "to=".startswith(stripped[9:].strip()))
    )


def _function_of(header: str) -> str:
    """The tool that a message goes to; empty: it goes to none."""
    match = _RECIPIENT.search(header)
    if match is None:
        return ""
    recipient = match[1]
    for tag in TAGS:
        recipient = recipient.partition(tag)[0]
    return recipient.removeprefix("functions.")


def _channel_of(header: str) -> str:
    words = header.rpartition(CHANNEL)[2].split() if CHANNEL in header else []
    return words[0] if words else ""
