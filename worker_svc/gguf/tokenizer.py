"""The tokenizer in a GGUF file, as tokenizer.json and tokenizer_config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from worker_svc.gguf.errors import GgufError
from worker_svc.gguf.reader import GgufFile

CONTROL = 3
"""Type of the tokens that no text is made into."""
BYTES: dict[str, Any] = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "gpt-2": BYTES,
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTES]},
}
"""How text is cut before merges, by GGUF's name of it."""
SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
"""Special tokens as tokenizer_config.json and as GGUF call them."""


def make_tokenizer(file: GgufFile) -> dict[str, Any]:
    """tokenizer.json. Raises GgufError for a tokenizer that is not one of byte pairs, or cuts text in an unknown
    way."""
    kind, cut = file.text("tokenizer.ggml.model"), file.text("tokenizer.ggml.pre", "gpt-2")
    if kind != "gpt2" or cut not in PRE_TOKENIZERS:
        raise GgufError(f"the tokenizer of GGUF's kind {kind}, {cut} is not converted here")
    if file.flag("tokenizer.ggml.add_bos_token", False):
        raise GgufError("a tokenizer that puts a token before every text is not converted here")
    tokens = file.texts("tokenizer.ggml.tokens")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens):
        raise GgufError("the tokenizer has a token twice")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(number, tokens[number]) for number in _control_tokens(file)],
        "normalizer": None,
        "pre_tokenizer": PRE_TOKENIZERS[cut],
        "post_processor": None,
        "decoder": BYTES,
        "model": {
            "type": "BPE",
            "vocab": vocabulary,
            "merges": _merges(file, vocabulary),
        },
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
        **special,
        **({"chat_template": template} if template else {}),
    }


def special_ids(file: GgufFile) -> dict[str, int]:
    """Special tokens that the file names: bos, eos, unk, pad."""
    ids = {name: file.metadata.get(f"tokenizer.ggml.{word}_token_id") for name, word in SPECIAL.items()}
    count = len(file.texts("tokenizer.ggml.tokens"))
    for name, number in ids.items():
        if number is not None and not (isinstance(number, int) and 0 <= number < count):
            raise GgufError(f"the special token {name} is none of the tokenizer's {count}")
    return {name: number for name, number in ids.items() if number is not None}


def _merges(file: GgufFile, vocabulary: Mapping[str, int]) -> list[list[str]]:
    """Pairs of tokens that become one."""
    merges = [merge.split(" ", 1) for merge in file.texts("tokenizer.ggml.merges")]
    for merge in merges:
        if len(merge) != 2 or not {*merge, "".join(merge)} <= vocabulary.keys():
            raise GgufError(f"the tokenizer merges {' '.join(merge)!r}, which are no tokens")
    return merges


def _control_tokens(file: GgufFile) -> list[int]:
    kinds = file.numbers("tokenizer.ggml.token_type", [])
    if len(kinds) not in (0, len(file.texts("tokenizer.ggml.tokens"))):
        raise GgufError("the tokenizer does not have one type for each token")
    return [number for number, kind in enumerate(kinds) if kind == CONTROL]


def _added(number: int, token: str) -> dict[str, Any]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": token, **plain, "special": True}
