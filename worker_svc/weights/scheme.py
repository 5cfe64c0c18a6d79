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
    """The checkpoint's own words."""
    told: str = ""
    """For the log: in what a model is not served as the checkpoint was meant. Empty: nothing."""


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


def _fp8(settings: dict[str, Any], path: Path) -> Scheme:
    """Numbers and scales as finegrained and per-tensor checkpoints have them; what is done to activations is told."""
    block = settings.get("weight_block_size")
    kind = "x".join(map(str, block)) + " blocks" if isinstance(block, list) else "scaled tensors or outputs"
    return Scheme("fp8", f"FP8, {kind}", settings, _told_of(settings.get("activation_scheme")))


def _fbgemm(settings: dict[str, Any], path: Path) -> Scheme:
    return Scheme("fp8", "FP8 (fbgemm), a scale for each output", settings, _told_of("dynamic"))


def _mxfp4(settings: dict[str, Any], path: Path) -> Scheme:
    return Scheme("mxfp4", "MXFP4 experts", settings)


def _bitsandbytes(settings: dict[str, Any], path: Path) -> Scheme:
    kind = "int8" if settings.get("load_in_8bit") else str(settings.get("bnb_4bit_quant_type", "fp4"))
    _one_of(kind, ("int8", "nf4", "fp4"), "bitsandbytes' type", path)
    return Scheme("bitsandbytes", f"bitsandbytes {kind}", settings)


def _modelopt(settings: dict[str, Any], path: Path) -> Scheme:
    algorithm = _one_of(str(settings.get("quant_algo", "")), ("FP8", "NVFP4"), "ModelOpt's algorithm", path)
    method = "fp8" if algorithm == "FP8" else "modelopt-nvfp4"
    return Scheme(method, f"{algorithm} (ModelOpt)", settings, _told_of("static"))


def _compressed(settings: dict[str, Any], path: Path) -> Scheme:
    sparsity = settings.get("sparsity_config")
    if isinstance(sparsity, dict) and sparsity.get("format", "dense") != "dense":
        raise ModelLoadError(f"{path}: sparse weights of the format {sparsity['format']!r} are not served.")
    if settings.get("transform_config"):
        raise ModelLoadError(f"{path}: transforms of activations (transform_config) are not served.")
    groups = _object(settings.get("config_groups") or {}, path)
    formats = {str(settings.get("format", "dense"))}
    formats |= {str(_object(group, path).get("format") or "") for group in groups.values()} - {""}
    for each in sorted(formats):
        _one_of(each, COMPRESSED_FORMATS, "compressed-tensors' format", path)
    kinds, changes = [], ""
    for group in groups.values():
        weights, inputs = (_object(group.get(key) or {}, path) for key in ("weights", "input_activations"))
        bits, size = _whole(weights, "num_bits", 8), weights.get("group_size")
        kind = f"{weights.get('type', 'int')} W{bits}A{inputs.get('num_bits', 16)}"
        kinds.append(f"{kind}, groups of {size}" if isinstance(size, int) and size > 0 else kind)
        if inputs:
            changes = _told_of("dynamic" if inputs.get("dynamic") else "static")
    return Scheme(
        "compressed-tensors", f"compressed-tensors {'; '.join(dict.fromkeys(kinds))}", settings, changes
    )


def _told_of(activations: Any) -> str:
    """What is told of a checkpoint that is meant for quantised activations."""
    if activations not in ("static", "dynamic"):
        return ""
    return (
        f"the checkpoint is meant for {activations}ally quantised activations; here they are not quantised, "
        "so that outputs are nearer to those of the model that was quantised"
    )


COMPRESSED_FORMATS = (
    *("dense", "int-quantized", "pack-quantized", "float-quantized", "naive-quantized", "mixed-precision"),
    *("nvfp4-pack-quantized", "mxfp4-pack-quantized"),
)
READERS: dict[str, Callable[[dict[str, Any], Path], Scheme]] = {
    "awq": _awq,
    "gptq": _gptq,
    "fp8": _fp8,
    "fbgemm_fp8": _fbgemm,
    "compressed-tensors": _compressed,
    "mxfp4": _mxfp4,
    "modelopt": _modelopt,
    "bitsandbytes": _bitsandbytes,
}
"""Who reads the settings of a method, by transformers' name of it."""
