"""Tokenizers of byte pairs in GGUF: text is cut, its bytes written as characters, and these merged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from worker_svc.gguf.errors import GgufError
from worker_svc.gguf.reader import GgufFile

BYTES: dict[str, Any] = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
SIGNS, LINES, SPACES = r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*"
SIGNS_OR_PATHS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"


def _cut(*alternatives: str) -> dict[str, Any]:
    """Pieces that match the first of these that does, and bytes of them."""
    split = {
        "type": "Split",
        "pattern": {"Regex": "|".join(alternatives)},
        "behavior": "Isolated",
        "invert": False,
    }
    return {"type": "Sequence", "pretokenizers": [split, BYTES | {"use_regex": False}]}


QWEN2 = _cut(CONTRACTIONS, LETTERS, r"\p{N}", SIGNS, LINES, SPACES)
LLAMA3 = _cut(CONTRACTIONS, LETTERS, r"\p{N}{1,3}", SIGNS, LINES, SPACES)
TEKKEN = _cut(*CASED, r"\p{N}", SIGNS_OR_PATHS, LINES, SPACES)
GPT4O = _cut(*(f"{cased}{CONTRACTIONS}?" for cased in CASED), r"\p{N}{1,3}", SIGNS_OR_PATHS, LINES, SPACES)
SINGLE_DIGITS: dict[str, Any] = {
    "type": "Sequence",
    "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTES],
}
SEED = _cut(CONTRACTIONS, LETTERS, r"\p{N}", r" ?[^\s\p{L}\p{N}\r\n]+", LINES, SPACES)
PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("gpt-2", "exaone4", "olmo"), BYTES),
    **dict.fromkeys(("smollm", "command-r", "refact", "starcoder"), SINGLE_DIGITS),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), QWEN2),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "smaug-bpe", "dbrx", "chatglm-bpe", "glm4"), LLAMA3),
    "tekken": TEKKEN,
    "gpt-4o": GPT4O,
    "seed-coder": SEED,
}
"""How text is cut before merges, by GGUF's name of it."""
COMPOSED = ("qwen2", "deepseek-r1-qwen")
"""Ways to cut before which marks are put together with their letters."""
WHOLE_FIRST = ("llama-bpe", "llama3", "llama-v3", "glm4")
"""Ways to cut after which a piece that is a token needs no merges."""


def byte_pairs(file: GgufFile) -> dict[str, Any]:
    """The parts of tokenizer.json that say how text becomes tokens. Raises GgufError for an unknown way to cut it."""
    cut = file.text("tokenizer.ggml.pre", "gpt-2")
    if cut not in PRE_TOKENIZERS:
        raise GgufError(
            f"a tokenizer that cuts text by {cut!r} is not served, only by {', '.join(PRE_TOKENIZERS)}"
        )
    vocabulary = {token: number for number, token in enumerate(file.texts("tokenizer.ggml.tokens"))}
    return {
        "normalizer": {"type": "NFC"} if cut in COMPOSED else None,
        "pre_tokenizer": PRE_TOKENIZERS[cut],
        "decoder": BYTES,
        "model": {
            "type": "BPE",
            "ignore_merges": cut in WHOLE_FIRST,
            "vocab": vocabulary,
            "merges": _merges(file, vocabulary),
        },
    }


def _merges(file: GgufFile, vocabulary: Mapping[str, int]) -> list[list[str]]:
    """Pairs of tokens that become one."""
    merges = [merge.split(" ", 1) for merge in file.texts("tokenizer.ggml.merges")]
    for merge in merges:
        if len(merge) != 2 or not {*merge, "".join(merge)} <= vocabulary.keys():
            raise GgufError(f"the tokenizer merges {' '.join(merge)!r}, which are no tokens")
    return merges
