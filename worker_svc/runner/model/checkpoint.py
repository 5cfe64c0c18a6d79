"""Checks a model directory before anything is loaded from it, so that a fault is told by the file's name."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from worker_svc.runner.errors import ModelLoadError

CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
WEIGHTS, WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED_PATTERNS = ("*.bin", "*.pt", "*.pth")
MAX_HEADER_BYTES = 100_000_000
"""Most bytes of a file's header, as the safetensors library has it."""


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. ModelLoadError if it is missing, unreadable or not an object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelLoadError(f"{path} does not exist.") from error
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}.") from error
    except RecursionError:
        raise ModelLoadError(f"{path} is nested too deep.") from None
    except ValueError as error:
        raise ModelLoadError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(value, dict):
        raise ModelLoadError(f"{path} does not hold a JSON object.")
    return value


def read_tokenizer_eos(model_dir: Path) -> list[int]:
    """The `eos_token` of tokenizer_config.json as the id that tokenizer.json gives it; empty where they do not say."""
    config_path, path = model_dir / TOKENIZER_CONFIG, model_dir / TOKENIZER
    if not config_path.is_file() or not path.is_file():
        return []
    token = read_json(config_path).get("eos_token")
    if isinstance(token, dict):
        token = token.get("content")
    if not isinstance(token, str):
        return []
    tokenizer = read_json(path)
    added = tokenizer.get("added_tokens") or []
    ids = [item.get("id") for item in added if isinstance(item, dict) and item.get("content") == token]
    if not ids:
        vocabulary = (tokenizer.get("model") or {}).get("vocab")
        ids = [vocabulary.get(token)] if isinstance(vocabulary, dict) else []
    return [token_id for token_id in ids if isinstance(token_id, int)]


def gguf_file(model_dir: Path) -> Path | None:
    """The directory's GGUF file, or the first of its parts; None: its weights are safetensors, or there are none."""
    if (model_dir / WEIGHTS).is_file() or (model_dir / WEIGHTS_INDEX).is_file():
        return None
    return min((path for path in model_dir.glob("*.gguf") if path.is_file()), default=None)


def check_weights(model_dir: Path) -> None:
    """Checks that the safetensors files are there and whole; a GGUF file is checked when it is opened. ModelLoadError
    names the first that is not."""
    if gguf_file(model_dir) is not None:
        return
    for path in weight_files(model_dir):
        _check_safetensors(path)


def count_elements(model_dir: Path) -> int:
    """Elements of all tensors in files that `check_weights` has passed."""
    headers = [_read_header(path)[0] for path in weight_files(model_dir)]
    return sum(
        math.prod(entry["shape"])
        for header in headers
        for name, entry in header.items()
        if name != "__metadata__"
    )


def weight_files(model_dir: Path) -> list[Path]:
    """The safetensors files of a directory. ModelLoadError when there are none."""
    if (model_dir / WEIGHTS).is_file():
        return [model_dir / WEIGHTS]
    index = model_dir / WEIGHTS_INDEX
    if index.is_file():
        return [model_dir / name for name in _shard_names(index)]
    pickled = sorted(path.name for pattern in PICKLED_PATTERNS for path in model_dir.glob(pattern))
    if pickled:
        raise ModelLoadError(
            f"{model_dir} has only pickled weights ({pickled[0]}), which can run code when loaded; "
            "convert them to safetensors."
        )
    raise ModelLoadError(f"{model_dir} has neither {WEIGHTS} nor {WEIGHTS_INDEX}.")


def _shard_names(index: Path) -> list[str]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelLoadError(f"{index} has no weight_map.")
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise ModelLoadError(f"{index} names {name!r}, which is not a safetensors file beside it.")
    return names


def _check_safetensors(path: Path) -> None:
    """Compares the file's length with its header: 8 bytes little endian, so many bytes of JSON, then data."""
    try:
        header, header_bytes = _read_header(path)
        size = path.stat().st_size
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ModelLoadError(f"{path} has a header that is not valid safetensors.") from error
    wanted = 8 + header_bytes + max(ends, default=0)
    if size < wanted:
        raise ModelLoadError(f"{path} is truncated: it has {size} of {wanted} bytes.")
    if size > wanted:
        raise ModelLoadError(f"{path} has {size} bytes, but its header accounts for {wanted}.")


def _read_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file and its length in bytes."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        if size < 8 or header_bytes > min(size - 8, MAX_HEADER_BYTES):
            raise ModelLoadError(f"{path} is truncated or not a safetensors file ({size} bytes).")
        header: dict[str, Any] = json.loads(file.read(header_bytes))
    return header, header_bytes
