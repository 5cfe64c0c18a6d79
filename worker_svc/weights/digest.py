"""A digest of a checkpoint: which weights these are, whatever files they lie in.

It is made of config.json, of the name, type and shape of every tensor, and of pieces of its bytes: small tensors whole,
of others pieces at even distances, the first and the last among them. So two trainings, fine-tunes, merged adapters and
roundings differ, as they change whole matrices; of a checkpoint of a few hundred tensors it reads 64 MiB at most. It
does not see a change that lies between the pieces: of a few rows of an embedding, say. How tensors are spread over
files is not part of it; another type of numbers, or GGUF instead of safetensors, is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from worker_svc.gguf.errors import GgufError
from worker_svc.gguf.parts import open_parts
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.checkpoint import CONFIG, gguf_file, read_json, weight_files
from worker_svc.weights.scheme import MODELOPT
from worker_svc.weights.tensor_file import read_tensors

PIECE_BYTES = 4096
MAX_PIECES = 1 << 14
"""Pieces of all tensors together, while each has `LEAST_PIECES` all the same."""
LEAST_PIECES, MOST_PIECES = 4, 64
"""Pieces of a tensor that is longer than so many."""
NUM_READERS = 8
DIGEST_BYTES = 16
NOT_NUMBERS = {"_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache"}
"""Keys of config.json that change no result; the type of numbers is told with the form."""


@dataclass(frozen=True)
class Extent:
    """Where one tensor lies."""

    label: str
    """Its name, type and shape."""
    path: Path
    start: int
    num_bytes: int


def digest_of(model_dir: Path) -> str:
    """A digest of the checkpoint in a model directory, in hexadecimal. ModelLoadError for one that cannot be read."""
    extents = sorted(_extents(model_dir), key=lambda extent: extent.label)
    num_pieces = min(max(MAX_PIECES // max(len(extents), 1), LEAST_PIECES), MOST_PIECES)
    with ExitStack() as stack:
        files = {extent.path: stack.enter_context(extent.path.open("rb")).fileno() for extent in extents}
        pool = stack.enter_context(ThreadPoolExecutor(NUM_READERS))
        parts = pool.map(partial(_digest_extent, files, num_pieces), extents)
        whole = blake2b(_config_bytes(model_dir), digest_size=DIGEST_BYTES)
        try:
            for part in parts:
                whole.update(part)
        except OSError as error:
            raise ModelLoadError(f"the weights of {model_dir} cannot be read: {error}.") from error
    return whole.hexdigest()


def piece_starts(num_bytes: int, num_pieces: int) -> Iterable[int]:
    """Where the pieces of a tensor begin, from its own first byte on; ascending."""
    if num_bytes <= num_pieces * PIECE_BYTES:
        return range(0, num_bytes, PIECE_BYTES)
    last = num_bytes - PIECE_BYTES
    return [last * number // (num_pieces - 1) for number in range(num_pieces)]


def _digest_extent(files: dict[Path, int], num_pieces: int, extent: Extent) -> bytes:
    label = extent.label.encode()
    digest = blake2b(len(label).to_bytes(4, "little") + label, digest_size=DIGEST_BYTES)
    for start in piece_starts(extent.num_bytes, num_pieces):
        length = min(PIECE_BYTES, extent.num_bytes - start)
        digest.update(os.pread(files[extent.path], length, extent.start + start))
    return digest.digest()


def _extents(model_dir: Path) -> Iterator[Extent]:
    gguf = gguf_file(model_dir)
    if gguf is None:
        for path in weight_files(model_dir):
            for stored in read_tensors(path).values():
                label = f"{stored.name} {stored.dtype} {list(stored.shape)}"
                yield Extent(label, path, stored.start, stored.num_bytes)
        return
    try:
        files = open_parts(gguf)
    except GgufError as error:
        raise ModelLoadError(f"{error}.") from error
    for file in files:
        for tensor in file.tensors.values():
            label = f"{tensor.name} gguf {tensor.storage.name} {list(tensor.shape)}"
            yield Extent(label, file.path, tensor.offset, tensor.num_bytes)


def _config_bytes(model_dir: Path) -> bytes:
    """What else says how the numbers are to be read and used."""
    told: list[dict[str, Any]] = []
    for name in (CONFIG, MODELOPT):
        if (model_dir / name).is_file():
            config = read_json(model_dir / name)
            told.append({key: value for key, value in config.items() if key not in NOT_NUMBERS})
    return json.dumps(told, sort_keys=True).encode()
