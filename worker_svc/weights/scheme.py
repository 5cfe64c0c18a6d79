"""How a checkpoint's weights are quantised, as its JSON files tell: without torch, before a tensor is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model.checkpoint import read_json

MODELOPT = "hf_quant_config.json"
"""Where ModelOpt tells what it did, in checkpoints whose config.json does not."""


@dataclass(frozen=True)
class Scheme:
    """One way to quantise a checkpoint."""

    method: str
    """Which decoder reads it."""
    name: str
    """For people: `AWQ int4, groups of 128`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """As the checkpoint has them."""


def read_scheme(model_dir: Path, config: Mapping[str, Any]) -> Scheme | None:
    """The scheme of a model directory; None: its weights are plain numbers. ModelLoadError for one that is not served,
    by its name."""
    settings = config.get("quantization_config")
    path = model_dir / "config.json"
    if settings is None and (model_dir / MODELOPT).is_file():
        path = model_dir / MODELOPT
        settings = {"quant_method": "modelopt", **_object(read_json(path).get("quantization"), path)}
    if settings is None:
        return None
    settings = _object(settings, path)
    method = str(settings.get("quant_method", "")).lower()
    if method not in READERS:
        raise ModelLoadError(
            f"{path}: weights quantised by {method or 'an unnamed method'!r} are not served, "
            f"only by {', '.join(READERS)}."
        )
    return READERS[method](settings, path)


def _object(value: Any, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ModelLoadError(f"{path}: the quantization config is not a JSON object.")
    return value


def _whole(settings: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = settings.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ModelLoadError(f"quantization_config: {key} is {value!r}, not a whole number.")
    return value


def _one_of(value: Any, known: tuple[Any, ...], what: str, path: Path) -> Any:
    if value not in known:
        raise ModelLoadError(f"{path}: {what} {value!r} is not served, only {', '.join(map(str, known))}.")
    return value


def _groups(group_size: int) -> str:
    return f"groups of {group_size}" if group_size > 0 else "a scale for each output"


def _awq(settings: dict[str, Any], path: Path) -> Scheme:
    bits = _one_of(_whole(settings, "bits", 4), (4,), "AWQ with bits", path)
    _one_of(str(settings.get("version", "gemm")).lower(), ("gemm",), "AWQ's layout", path)
    return Scheme("awq", f"AWQ int{bits}, {_groups(_whole(settings, 'group_size', 128))}", settings)


def _gptq(settings: dict[str, Any], path: Path) -> Scheme:
    bits = _one_of(_whole(settings, "bits"), (2, 3, 4, 8), "GPTQ with bits", path)
    layout = str(settings.get("checkpoint_format", settings.get("format", "gptq"))).lower()
    _one_of(layout, ("gptq", "gptq_v2"), "GPTQ's layout", path)
    order = ", act-order" if settings.get("desc_act") else ""
    return Scheme("gptq", f"GPTQ int{bits}, {_groups(_whole(settings, 'group_size', 128))}{order}", settings)


READERS: dict[str, Callable[[dict[str, Any], Path], Scheme]] = {
    "awq": _awq,
    "gptq": _gptq,
}
"""Who reads the settings of a method, by transformers' name of it."""
