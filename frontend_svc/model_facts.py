"""What config.json and generation_config.json of a model directory say, for gateways that ask."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from signalbox.errors import StartupError


@dataclass(frozen=True)
class ModelFacts:
    """What the files of a model's directory say of it; empty or 0: they do not say."""

    model_type: str = ""
    architectures: tuple[str, ...] = ()
    eos_token_ids: tuple[int, ...] = ()
    """The tokens that end an output, of config.json and generation_config.json together."""
    pad_token_id: int = 0
    bos_token_id: int = 0


def read_model_facts(directory: Path) -> ModelFacts:
    """Raises StartupError for a file that is there and no JSON object; a missing one says nothing."""
    config = _read(directory / "config.json")
    generation = _read(directory / "generation_config.json")
    eos = dict.fromkeys(
        [*_token_ids(config.get("eos_token_id")), *_token_ids(generation.get("eos_token_id"))]
    )
    return ModelFacts(
        model_type=str(config.get("model_type") or ""),
        architectures=tuple(map(str, config.get("architectures") or ())),
        eos_token_ids=tuple(eos),
        pad_token_id=_token_id(config.get("pad_token_id")),
        bos_token_id=_token_id(config.get("bos_token_id")),
    )


def _token_ids(value: Any) -> list[int]:
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, int)]


def _token_id(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StartupError(f"cannot read {path}: {error}") from None
    if not isinstance(config, dict):
        raise StartupError(f"{path} is not a JSON object")
    return config
