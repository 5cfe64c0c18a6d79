"""The tokenizer of a model directory: text to tokens, tokens to bytes, and its fingerprint."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Container
from pathlib import Path
from typing import Any

from tokenizers import Encoding
from tokenizers import Tokenizer as FastTokenizer

from frontend_svc.templates.library import (
    ChatTemplates,
    load_chat_templates,
    load_given_template,
    special_token,
)
from frontend_svc.text.longest_token import longest_token
from signalbox.errors import StartupError
from signalbox.runtime.start.model_directory import no_directory

LONG_TEXT_CHARS = 8192
"""Texts from this length on are encoded in a thread (the library drops the GIL): it takes over a millisecond."""
LONG_TOKENS = 4096
"""Lists of tokens from this length on are made into text in a thread: it takes about half a millisecond."""


class Tokenizer:
    """tokenizer.json and tokenizer_config.json of one directory."""

    def __init__(
        self, fast: FastTokenizer, source: bytes, config: dict[str, Any], chat: ChatTemplates | None
    ) -> None:
        """`source` are the bytes of tokenizer.json."""
        self.fast = fast
        self.fingerprint = hashlib.sha256(source).hexdigest()
        """sha256 of tokenizer.json, in hex."""
        self.chat = chat
        """None: the model has no chat template."""
        self.eos_token = special_token(config, "eos_token")
        self.eos_token_id: int | None = fast.token_to_id(self.eos_token) if self.eos_token else None
        parsed = json.loads(source)
        decoder = parsed.get("decoder")
        self.longest_token = longest_token(parsed)
        """Characters that one token can stand for; None: there is no bound."""
        added = fast.get_added_tokens_decoder().items()
        self.special_tokens = {
            token.content: token_id
            for token_id, token in fast.get_added_tokens_decoder().items()
            if token.special
        }
        """Ids by text."""
        self.special_ids = frozenset(token_id for token_id, token in added if token.special)
        """Tokens that `decode` leaves out, whatever stands around them."""
        is_bytes = _is_byte_level(decoder)
        self.token_bytes = TokenBytes(fast, self.special_ids) if is_bytes else None
        """Bytes of each token, if the text is nothing but the bytes of the tokens one behind the other."""
        self.all_token_bytes = TokenBytes(fast, ()) if is_bytes else None
        """Bytes of each token, special ones included; None as for `token_bytes`."""

    async def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of `text`; long texts are encoded beside the event loop."""
        ids: list[int] = (await self.encoding_of(text, add_special_tokens=add_special_tokens)).ids
        return ids

    async def encoding_of(self, text: str, *, add_special_tokens: bool) -> Encoding:
        """The tokens of `text`, which can be counted ahead of making a list of their ids; otherwise as `encode`."""
        if len(text) < LONG_TEXT_CHARS:
            return self._encode(text, add_special_tokens)
        return await asyncio.to_thread(self._encode, text, add_special_tokens)

    def _encode(self, text: str, add_special_tokens: bool) -> Encoding:
        # The "fast" batch call leaves out offsets, which nobody reads: half the time of encode().
        return self.fast.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0]

    async def text_of(self, token_ids: list[int]) -> str:
        """As `decode`; many tokens are decoded beside the event loop."""
        if len(token_ids) < LONG_TOKENS:
            return self.decode(token_ids)
        # The batch call alone leaves the interpreter to others.
        texts: list[str] = await asyncio.to_thread(self.fast.decode_batch, [token_ids])
        return texts[0]

    def decode(self, token_ids: list[int], *, with_special: bool = False) -> str:
        """Text of `token_ids`, without special tokens unless they are asked for."""
        text: str = self.fast.decode(token_ids, skip_special_tokens=not with_special)
        return text

    def piece(self, token_id: int) -> bytes:
        """What one token stands for by itself, special tokens included."""
        if self.token_bytes is not None and (known := self.token_bytes[token_id]):
            return known
        return self.decode([token_id], with_special=True).encode()


class TokenBytes(dict[int, bytes]):
    """Bytes of each token of a byte-level tokenizer, filled on demand; the tokens that are left out are empty."""

    def __init__(self, fast: FastTokenizer, left_out: Container[int]) -> None:
        super().__init__()
        self._fast = fast
        self._left_out = left_out

    def __missing__(self, token_id: int) -> bytes:
        token = self._fast.id_to_token(token_id)
        value = b"" if token is None or token_id in self._left_out else _bytes_of(token)
        self[token_id] = value
        return value


def _bytes_of(token: str) -> bytes:
    """The bytes of a token, as the ByteLevel decoder has them: one with a character outside the alphabet stands for
    itself."""
    try:
        return bytes([_BYTES[character] for character in token])
    except KeyError:
        return token.encode()


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's stand-ins for bytes: those that print are themselves, the others are 256, 257, ..."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTES = _byte_alphabet()


def _is_byte_level(decoder: Any) -> bool:
    if not isinstance(decoder, dict):
        return False
    if decoder.get("type") == "Sequence":
        parts = decoder.get("decoders", [])
        return len(parts) == 1 and _is_byte_level(parts[0])
    return decoder.get("type") == "ByteLevel"


def load_tokenizer(directory: Path, chat_template: Path | None = None) -> Tokenizer:
    """Reads the tokenizer of a model directory; `chat_template` is a file that stands for its own chat templates.

    Raises StartupError with what is missing or broken; a broken template of the directory is told when it is used.
    """
    if not directory.is_dir():
        raise StartupError(no_directory(directory, "frontend"))
    source = _read(directory / "tokenizer.json")
    try:
        fast = FastTokenizer.from_buffer(source)
    except Exception as error:  # the library raises bare Exception and ValueError
        raise StartupError(f"cannot load {directory / 'tokenizer.json'}: {error}") from None
    # Files of encoders often tell of a length to cut and to fill up to, which is not asked for here.
    fast.no_truncation()
    fast.no_padding()
    config = _read_config(directory / "tokenizer_config.json")
    if chat_template is not None:
        return Tokenizer(fast, source, config, load_given_template(chat_template, directory, config))
    return Tokenizer(fast, source, config, load_chat_templates(directory, config))


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        config = json.loads(_read(path))
    except ValueError as error:
        raise StartupError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise StartupError(f"{path} is not a JSON object")
    return config


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StartupError(f"cannot read {path}: {error.strerror}") from None
