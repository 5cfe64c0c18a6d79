"""Tokenizers of sentence pieces in GGUF: spaces are written as a sign, and merges follow from the vocabulary."""

from __future__ import annotations

from typing import Any

from worker_svc.gguf.errors import GgufError
from worker_svc.gguf.reader import GgufFile

SPACE = "\u2581"
GEMMAS = ("gemma", "gemma2", "gemma3")
MAX_TOKEN_CHARS = 4096
"""Far above any token: each is tried in all its cuts."""
NORMAL, USER_DEFINED = 1, 4
TO_SIGN: dict[str, Any] = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
FROM_SIGN: dict[str, Any] = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
JOINED: list[dict[str, Any]] = [FROM_SIGN, {"type": "ByteFallback"}, {"type": "Fuse"}]


def pieces(file: GgufFile) -> dict[str, Any]:
    """The parts of tokenizer.json that make tokens of text. Raises GgufError for a vocabulary without scores."""
    is_gemma = file.text("general.architecture") in GEMMAS
    tokens = (
        _spelled(file.texts("tokenizer.ggml.tokens")) if is_gemma else file.texts("tokenizer.ggml.tokens")
    )
    if max(map(len, tokens), default=0) > MAX_TOKEN_CHARS:
        raise GgufError(f"{file.path} has a token of more than {MAX_TOKEN_CHARS} characters")
    begins_with_space = file.flag("tokenizer.ggml.add_space_prefix", not is_gemma)
    normalizer, decoders = TO_SIGN, list(JOINED)
    if begins_with_space:
        prepend = {"type": "Prepend", "prepend": SPACE}
        normalizer = {"type": "Sequence", "normalizers": [prepend, TO_SIGN]}
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    unknown = file.metadata.get("tokenizer.ggml.unknown_token_id")
    return {
        "normalizer": normalizer,
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {
            "type": "BPE",
            "unk_token": tokens[unknown] if isinstance(unknown, int) and 0 <= unknown < len(tokens) else None,
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": make_merges(tokens, _ranks(file, tokens, is_gemma)),
        },
    }


def make_merges(tokens: list[str], ranks: dict[str, tuple[float, int]]) -> list[list[str]]:
    """All pairs of tokens that make a token with a rank, those of the lowest rank first."""
    known = {token: number for number, token in enumerate(tokens)}
    found = []
    for token, rank in ranks.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in known and right in known:
                found.append((rank, known[left], known[right], left, right))
    found.sort()
    return [[left, right] for *_, left, right in found]


def _ranks(file: GgufFile, tokens: list[str], is_gemma: bool) -> dict[str, tuple[float, int]]:
    """The order in which tokens are merged: by their scores, the highest first. Gemma's runs of spaces and line ends
    have no scores, and are merged in the order of the vocabulary, as all its tokens are."""
    scores = file.scores("tokenizer.ggml.scores")
    kinds = file.numbers("tokenizer.ggml.token_type", [])
    if not len(tokens) == len(scores) == len(kinds):
        raise GgufError(
            f"{file.path} has {len(tokens)} tokens, but {len(scores)} scores and {len(kinds)} types"
        )
    merged = (NORMAL, USER_DEFINED) if is_gemma else (NORMAL,)
    return {
        token: (0.0 if is_gemma else -score, number)
        for number, (token, score, kind) in enumerate(zip(tokens, scores, kinds, strict=True))
        if kind in merged
    }


def _spelled(tokens: list[str]) -> list[str]:
    """Runs of spaces as the normalizer writes them. Gemma's files have them as they are."""
    return [SPACE * len(token) if token and not token.strip(" ") else token for token in tokens]
