"""How many characters of a text one token can stand for at most: a text that is far too long is refused by its length.

Encoding 8 MiB takes seconds of a thread, only to say that a model of 4,096 tokens cannot read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NFC_FACTOR = 4
"""Characters that become one by canonical composition, at most (U+1F82 and its like)."""
KEEPING_NORMALIZERS = {"NFC", "Prepend", "Replace"}
KEEPING_SPLITTERS = {"ByteLevel", "Digits", "Metaspace", "Split"}


def longest_token(source: Mapping[str, Any]) -> int | None:
    """Characters of a text that one token can stand for, by tokenizer.json; None: any number, or it is not known.

    Known are tokenizers that keep all of a text: every byte or character of it is in a token of its own or in one that
    has it in its name. Those that drop spaces or give whole words one unknown token have no bound.
    """
    model = source.get("model") or {}
    normalizers, splitters = _parts(source, "normalizer"), _parts(source, "pre_tokenizer")
    keeps_bytes = any(part.get("type") == "ByteLevel" for part in splitters) or model.get("byte_fallback")
    if model.get("type") != "BPE" or not keeps_bytes:
        return None
    if not all(map(_keeps_characters, normalizers)) or not all(map(_keeps_text, splitters)):
        return None
    added = source.get("added_tokens") or []
    if any(token.get("lstrip") or token.get("rstrip") for token in added):
        return None  # they take all spaces beside them
    names = [*(model.get("vocab") or {}), *(token["content"] for token in added)]
    longest = max(map(len, names), default=1)
    return longest * NFC_FACTOR if any(part["type"] == "NFC" for part in normalizers) else longest


def _parts(source: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The steps of a normalizer or pre-tokenizer."""
    step = source.get(name)
    if step is None:
        return []
    parts = step.get("normalizers") or step.get("pretokenizers") if step.get("type") == "Sequence" else None
    return [step] if parts is None else parts


def _keeps_characters(normalizer: Mapping[str, Any]) -> bool:
    if normalizer.get("type") not in KEEPING_NORMALIZERS:
        return False
    pattern = (normalizer.get("pattern") or {}).get("String")
    return normalizer["type"] != "Replace" or (
        pattern is not None and len(pattern) <= len(normalizer["content"])
    )


def _keeps_text(splitter: Mapping[str, Any]) -> bool:
    return splitter.get("type") in KEEPING_SPLITTERS and splitter.get("behavior") != "Removed"
