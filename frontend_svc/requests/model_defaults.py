"""Sampling parameters that a model brings for requests that leave them out: its generation_config.json."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from frontend_svc.requests.request import ClientRequest, Sampling
from signalbox.errors import StartupError
from signalbox.protocol.sampling import RANGES, TYPES

log = logging.getLogger(__name__)

FILE = "generation_config.json"
NAMES = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""The parameters that are taken over; vLLM takes the same. `do_sample` is not one of them."""
MAX_TOKENS = "max_new_tokens"


@dataclass(frozen=True)
class ModelDefaults:
    """The defaults of one model."""

    sampling: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int | None = None
    """Most output tokens, as far as they fit the context; None: all that fit."""

    def as_json(self) -> dict[str, Any]:
        """All, under the names of requests' fields."""
        limit = {} if self.max_tokens is None else {"max_tokens": self.max_tokens}
        return dict(self.sampling) | limit


NO_DEFAULTS = ModelDefaults()


def read_model_defaults(directory: Path) -> ModelDefaults:
    """What the model's directory says. A value that no request could have is told in the log and left out.

    Raises StartupError for a file that is there and no JSON object.
    """
    path = directory / FILE
    if not path.is_file():
        return NO_DEFAULTS
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise StartupError(f"cannot read {path}: {error}") from None
    if not isinstance(config, dict):
        raise StartupError(f"{path} is not a JSON object")
    values = {name: _read(config.get(name), name, path) for name in NAMES}
    sampling = {name: value for name, value in values.items() if value is not None}
    return ModelDefaults(sampling, _read(config.get(MAX_TOKENS), "max_tokens", path))


def fill_in(request: ClientRequest, defaults: ModelDefaults) -> ClientRequest:
    """`request` with the defaults for what it leaves out."""
    if request.pooling is not None or not request.use_model_defaults:
        return request
    return replace(
        request,
        sampling=cast(Sampling, {**defaults.sampling, **request.sampling}),
        default_max_tokens=request.default_max_tokens or defaults.max_tokens,
    )


def _read(value: Any, name: str, path: Path) -> Any:
    """None: the file does not say, or nothing that can be used."""
    if value is None:
        return None
    if name == "top_k" and value == -1:
        value = 0
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or value not in RANGES[name] or (TYPES[name] is int and value != int(value)):
        log.warning("%s: %s is %r, which must be %s: it is not used", path, name, value, RANGES[name])
        return None
    return TYPES[name](value)
