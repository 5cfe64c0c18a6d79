"""Finds the language of a model: by what the settings name, else by its own template and vocabulary."""

from __future__ import annotations

from dataclasses import replace

from frontend_svc.text.parsing.detection import choose_reasoning, choose_tools
from frontend_svc.text.parsing.harmony import WORDS
from frontend_svc.text.parsing.language import Language
from frontend_svc.text.tokenizer import Tokenizer


def find_language(tokenizer: Tokenizer | None, reasoning_parser: str, tool_parser: str) -> Language:
    """Without a tokenizer there is none. Raises StartupError for a name that is not known."""
    if tokenizer is None:
        return Language()
    token_ids = {
        token.content: token_id for token_id, token in tokenizer.fast.get_added_tokens_decoder().items()
    }
    template = "\n".join(tokenizer.chat.sources.values()) if tokenizer.chat is not None else ""
    language = Language(
        choose_reasoning(reasoning_parser, token_ids, template),
        choose_tools(tool_parser, token_ids, template),
        token_ids,
    )
    if not language.is_harmony:
        return language
    encode = tokenizer.fast.encode
    words = {word: tuple(encode(word, add_special_tokens=False).ids) for word in WORDS}
    return replace(language, words=words)
