"""The files that make a tokenizer, as the zip archive that smg unpacks."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

from signalbox.vllm import common_pb2 as common

CHUNK_BYTES = 64 << 10
FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json", "config.json",
    "generation_config.json",
)  # fmt: skip
"""What a tokenizer is read from, by those that read one; nothing else of the directory is given away."""


def make_archive(directory: Path) -> bytes:
    """The tokenizer's files of a model directory: the same bytes for the same files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in (directory / name for name in FILES):
            if path.is_file():
                archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def split(archive: bytes) -> Iterator[common.GetTokenizerChunk]:
    """Pieces in order; the last one carries the SHA-256 of the whole."""
    for start in range(0, len(archive), CHUNK_BYTES):
        is_last = start + CHUNK_BYTES >= len(archive)
        yield common.GetTokenizerChunk(
            data=archive[start : start + CHUNK_BYTES],
            sha256=hashlib.sha256(archive).hexdigest() if is_last else "",
        )
