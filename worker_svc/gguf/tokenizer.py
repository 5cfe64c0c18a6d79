"""The tokenizer in a GGUF file, as tokenizer.json and tokenizer_config.json."""

from __future__ import annotations

from typing import Any

from worker_svc.gguf.byte_pairs import byte_pairs
from worker_svc.gguf.errors import GgufError
from worker_svc.gguf.pieces import pieces
from worker_svc.gguf.reader import GgufFile

CONTROL, USER_DEFINED = 3, 4
"""Types of the tokens that no text is made into, and of those that are found in a text before it is cut."""
BYTE_PAIRS, PIECES = "gpt2", "llama"
"""GGUF's names of the kinds of tokenizers that are read here."""
BEGINS_BY_DEFAULT = ("llama-bpe", "llama3", "llama-v3")
"""Ways of byte pairs to cut text, with which a text begins with a token unless the file says otherwise."""
SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
"""Special tokens as tokenizer_config.json and as GGUF call them."""
STOPS = ("eos", "eot", "eom")
"""Tokens that end an output."""


def make_tokenizer(file: GgufFile) -> dict[str, Any]:
    """tokenizer.json. Raises GgufError for a tokenizer of another kind, or that cuts text in an unknown way."""
    kind = file.text("tokenizer.ggml.model")
    if kind not in (BYTE_PAIRS, PIECES):
        raise GgufError(f"the tokenizer of GGUF's kind {kind} is not served, only {BYTE_PAIRS} and {PIECES}")
    parts = byte_pairs(file) if kind == BYTE_PAIRS else pieces(file)
    tokens = parts["model"]["vocab"]
    if len(tokens) < len(file.texts("tokenizer.ggml.tokens")):
        raise GgufError("the tokenizer has a token twice")
    by_number = {number: token for token, number in tokens.items()}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(number, by_number[number], kind) for number, kind in _whole_tokens(file)],
        "post_processor": _frame(file, by_number),
        **parts,
    }


def make_tokenizer_config(file: GgufFile) -> dict[str, Any]:
    """tokenizer_config.json: special tokens and the chat template."""
    tokens = file.texts("tokenizer.ggml.tokens")
    special = {f"{name}_token": tokens[number] for name, number in special_ids(file).items()}
    template = file.text("tokenizer.chat_template", "")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": file.size(f"{file.text('general.architecture')}.context_length"),
        "add_bos_token": adds(file, "bos"),
        "add_eos_token": adds(file, "eos"),
        **special,
        **({"chat_template": template} if template else {}),
    }


def special_ids(file: GgufFile) -> dict[str, int]:
    """Special tokens that the file names: bos, eos, unk, pad. Raises GgufError for one that is no token."""
    return _ids(file, SPECIAL)


def stop_ids(file: GgufFile) -> list[int]:
    """Tokens that end an output, the end of sequence first."""
    return list(dict.fromkeys(_ids(file, {name: name for name in STOPS}).values()))


def adds(file: GgufFile, name: str) -> bool:
    """Whether a text gets the token `bos` or `eos` from the tokenizer."""
    is_of_pieces = file.text("tokenizer.ggml.model") == PIECES
    begins = is_of_pieces or file.text("tokenizer.ggml.pre", "") in BEGINS_BY_DEFAULT
    return file.flag(f"tokenizer.ggml.add_{name}_token", name == "bos" and begins)


def _ids(file: GgufFile, names: dict[str, str]) -> dict[str, int]:
    ids = {name: file.metadata.get(f"tokenizer.ggml.{word}_token_id") for name, word in names.items()}
    num_tokens = len(file.texts("tokenizer.ggml.tokens"))
    for name, number in ids.items():
        if number is not None and not (isinstance(number, int) and 0 <= number < num_tokens):
            raise GgufError(f"{file.path}: {number!r} is no token that could be {name}")
    return {name: number for name, number in ids.items() if number is not None}


def _whole_tokens(file: GgufFile) -> list[tuple[int, int]]:
    """Tokens that are found in a text as they are, each with its type."""
    kinds = file.numbers("tokenizer.ggml.token_type", [])
    if len(kinds) not in (0, len(file.texts("tokenizer.ggml.tokens"))):
        raise GgufError("the tokenizer does not have one type for each token")
    return [(number, kind) for number, kind in enumerate(kinds) if kind in (CONTROL, USER_DEFINED)]


def _added(number: int, token: str, kind: int) -> dict[str, Any]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": token, **plain, "special": kind == CONTROL}


def _frame(file: GgufFile, tokens: dict[int, str]) -> dict[str, Any] | None:
    """Puts the tokens that a text begins and ends with around it; None: there are none."""
    ids = special_ids(file)
    wanted = {name: ids[name] for name in ("bos", "eos") if name in ids and adds(file, name)}
    if not wanted:
        return None
    special = {
        name: {"SpecialToken": {"id": tokens[number], "type_id": 0}} for name, number in wanted.items()
    }

    def framed(text: str) -> list[dict[str, Any]]:
        around = [special.get("bos"), {"Sequence": {"id": text, "type_id": 0}}, special.get("eos")]
        return [part for part in around if part is not None]

    return {
        "type": "TemplateProcessing",
        "single": framed("A"),
        "pair": framed("A") + framed("B"),
        "special_tokens": {
            tokens[number]: {"id": tokens[number], "ids": [number], "tokens": [tokens[number]]}
            for number in wanted.values()
        },
    }
