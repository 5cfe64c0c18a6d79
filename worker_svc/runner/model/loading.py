"""Loads a Hugging Face causal language model whose attention runs on the paged KV cache."""

from __future__ import annotations

import logging
from collections.abc import Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import transformers

from signalbox.runtime.start.model_directory import no_directory
from worker_svc.runner.attention import attention
from worker_svc.runner.attention.attention import Recorded, native_kernels
from worker_svc.runner.attention.kv_cache import NO_KV, LayerShape
from worker_svc.runner.attention.latent import absorb_projections
from worker_svc.runner.attention.visibility import Visibility
from worker_svc.runner.cpu.flags import BFLOAT16_CPU_FLAGS, cpu_flags
from worker_svc.runner.cpu.packed_codes import fits
from worker_svc.runner.cpu.rounded_weights import rounding
from worker_svc.runner.errors import ModelLoadError, one_line
from worker_svc.runner.model import checkpoint, wrapper
from worker_svc.runner.model.expert_weights import with_stacks
from worker_svc.runner.model.indexed import without_indexer
from worker_svc.runner.model.kept_weights import KeptWeights, Quantization
from worker_svc.runner.model.label_head import HeadKind, LabelHead, read_label_head
from worker_svc.runner.model.lazy_weights import LazyWeights
from worker_svc.runner.model.llama4 import serve_llama4
from worker_svc.runner.model.loading_threads import sharing_threads
from worker_svc.runner.model.memory import available_bytes, check_weights_fit
from worker_svc.runner.model.quantised_experts import skipping_experts
from worker_svc.runner.model.quantised_linear import skipping_products
from worker_svc.runner.model.rope import fix_rope
from worker_svc.runner.model.scored_model import with_label_head
from worker_svc.runner.model.support import (
    HYBRID_FAMILIES,
    OTHER_NAMES,
    OWN_ATTENTION,
    RECURRENT,
    check_config,
    check_keys,
)
from worker_svc.runner.model.windows import check_visibility, named_windows
from worker_svc.runner.recurrent.layers import layout_of, serve_recurrent
from worker_svc.runner.recurrent.layout import StateLayout
from worker_svc.runner.split.split import Split
from worker_svc.weights.source import WeightSource, open_weights

logger = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
BFLOAT16_CAPABILITY = (8, 0)
"""Compute capability with which GPUs of NVIDIA begin to have bfloat16."""
MODELS: dict[HeadKind, Any] = {
    HeadKind.SEQUENCE: transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    HeadKind.TOKENS: transformers.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    HeadKind.WORDS: transformers.MODEL_FOR_CAUSAL_LM_MAPPING,
}
"""The models of transformers by their configs."""


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode on its device, and what the runner needs to know about it."""

    module: Any
    """The transformers model, or a `ScoredModel`; called with `input_ids` and `position_ids` `[1, T]`."""
    layer_shapes: list[LayerShape]
    dtype: torch.dtype
    device: torch.device
    vocab_size: int
    max_position_embeddings: int
    eos_token_ids: tuple[int, ...]
    windows: tuple[int, ...]
    """Positions that queries of some layers see at most, by the config, ascending; empty: all see all."""
    head: LabelHead | None = None
    """Its classification head; None: it is a language model."""
    num_kept: int = 0
    """Linear layers whose weights are whole numbers; their products round rows to 16 bits."""
    kept: str = ""
    """How many of them in which form; empty: none."""
    state_layout: StateLayout = field(default_factory=StateLayout)
    """What its recurrent layers keep of each sequence; empty: it has none here."""
    state_bytes: int = 0
    """Bytes of that in all of its layers, wherever they are; 0: no layer keeps a state."""
    rope: str = ""
    """Which of its rope's factors were chosen by `max_model_len`; empty: there was no choice."""
    split: Split | None = None
    """This rank's part of it; None: it is here as a whole."""
    shapes_of_all: list[LayerShape] = field(default_factory=list)
    """`layer_shapes` of a model whose other layers are at other ranks; empty: all are here."""

    @property
    def group_shapes(self) -> list[LayerShape]:
        """What all layers keep, wherever they are: by these blocks are counted."""
        return self.shapes_of_all or self.layer_shapes


def load_model(
    model_dir: Path,
    *,
    dtype: str = "auto",
    device: str = "cpu",
    quantization: Quantization = Quantization.NONE,
    max_model_len: int | None = None,
    split: Split | None = None,
) -> LoadedModel:
    """Loads `model_dir` (config.json and safetensors). Nothing is fetched, and no code in the directory runs.

    `dtype` is auto, float32 or bfloat16. With a `quantization`, linear layers may be `QuantisedLinear`, to be packed.
    `max_model_len` chooses the factors of longrope; None: requests may be as long as the model was made for. `split`:
    this process has a part of it alone; None: all of it.
    ModelLoadError if the directory or a setting cannot be served.
    """
    if not model_dir.is_dir():
        raise ModelLoadError(no_directory(model_dir, "worker"))
    raw_config = checkpoint.read_json(model_dir / checkpoint.CONFIG)
    check_config(raw_config, model_dir / checkpoint.CONFIG, max_model_len)
    checkpoint.check_weights(model_dir)
    chosen_device = choose_device(device)
    chosen_dtype = choose_dtype(dtype, chosen_device)
    source, text_config = _text_part(model_dir, raw_config)
    head = read_label_head(model_dir, text_config)
    kind = head.kind if head else HeadKind.WORDS
    module, num_kept, told = _load_module(
        model_dir,
        text_config,
        source,
        chosen_dtype,
        chosen_device,
        kind,
        quantization,
        split,
        splits_head=head is None,
    )
    if head is not None:
        module = with_label_head(module, head)
    module = module.to(chosen_device).eval()
    recurrent = serve_recurrent(module)
    num_latent = absorb_projections(module)
    if num_latent:
        logger.info("%d layers keep latents instead of keys and values", num_latent)
    config = module.config
    # First of all: what has no such attention is refused with that reason.
    numbers = {layer.layer_idx for layer in recurrent}
    shapes, seen = look_at_layers(module, chosen_device, numbers, split)
    num_positions = max_model_len or config.max_position_embeddings
    check_visibility(config, seen, num_positions)
    states = layout_of(recurrent)
    state_bytes, of_all = states.bytes_per_row, shapes
    if split is not None:
        state_bytes, of_all = split.of_all_stages(state_bytes), split.shapes_of_all(shapes)
    if state_bytes and not any(shape.elements for shape in of_all):
        raise ModelLoadError(
            f"model_type {config.model_type!r} has recurrent layers alone, none that attends."
        )
    rope = fix_rope(module, num_positions)
    return LoadedModel(
        module=module,
        layer_shapes=shapes,
        dtype=chosen_dtype,
        device=chosen_device,
        vocab_size=config.vocab_size,
        max_position_embeddings=config.max_position_embeddings,
        eos_token_ids=read_eos_token_ids(model_dir, text_config),
        windows=tuple(named_windows(config)),
        head=head,
        num_kept=num_kept,
        kept=told,
        state_layout=states,
        state_bytes=state_bytes,
        rope=rope,
        split=split,
        shapes_of_all=[] if split is None else of_all,
    )


def choose_device(device: str) -> torch.device:
    """The device of that name. ModelLoadError if this machine lacks it."""
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ModelLoadError(f"device {device!r} is not a device that torch knows.") from error
    if chosen.type not in ("cpu", "cuda"):
        raise ModelLoadError(f"device {device!r} is neither cpu nor cuda.")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ModelLoadError(f"device {device!r} was asked for, but torch sees no CUDA device.")
    if chosen.type == "cuda":
        sum_in_float32()
    return chosen


def sum_in_float32() -> None:
    """Has products on a GPU add up the parts of a split product in float32. By default torch lets cuBLAS add them up in
    the type of the result, which is less exact."""
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """Resolves "auto": bfloat16, but float32 on a CPU or GPU that would have to emulate it. ModelLoadError where the
    type is not served there."""
    if dtype not in ("auto", *DTYPES):
        raise ModelLoadError(f"dtype {dtype!r} is not one of auto, {', '.join(DTYPES)}.")
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return gpu_dtype(dtype, properties.name, (properties.major, properties.minor))
    if dtype == "auto":
        return torch.bfloat16 if BFLOAT16_CPU_FLAGS & cpu_flags() else torch.float32
    return DTYPES[dtype]


def gpu_dtype(dtype: str, name: str, capability: tuple[int, int]) -> torch.dtype:
    """As `choose_dtype`, on a GPU of that name and compute capability."""
    if capability >= BFLOAT16_CAPABILITY:
        return DTYPES.get(dtype, torch.bfloat16)
    lack = f"{name} (compute capability {capability[0]}.{capability[1]}) has no bfloat16, which 8.0 and later have"
    if dtype == "bfloat16":
        raise ModelLoadError(
            f"{lack}: set --dtype float32, which takes twice the memory, or take another GPU."
        )
    if dtype == "auto":
        logger.warning("%s: the model is served in float32, which takes twice the memory", lack)
    return torch.float32


def look_at_layers(
    module: Any, device: torch.device, recurrent: Set[int] = frozenset(), split: Split | None = None
) -> tuple[list[LayerShape], dict[int, Visibility]]:
    """KV shapes of all layers, as the model hands them to an attention function when it runs one token; those of the
    `recurrent` ones, of layers that mix no tokens, and of those that other ranks have by `split`, are empty. And what
    queries see, by layer.

    ModelLoadError if another layer calls none: then it would not read the paged cache either.
    """
    family = module.config.model_type
    try:
        recorded = _run_recorded(module, device, notes_masks=True)
    except Exception:  # a model that computes with masks
        try:
            recorded = _run_recorded(module, device, notes_masks=False)
        except Exception as error:  # a model that needs the masks or the cache of its own attention
            raise ModelLoadError(
                f"model_type {family!r} does not run with another attention function: it {OWN_ATTENTION} "
                f"({one_line(error)})."
            ) from error
    shapes, num_layers = recorded.shapes, int(module.config.num_hidden_layers)
    without = recurrent | (mixing_nothing(module.config) if family in HYBRID_FAMILIES else set())
    here = set(range(num_layers)) if split is None or split.stage is None else set(split.stage.layers)
    missing = sorted(here - shapes.keys() - without)
    if missing:
        raise ModelLoadError(
            f"model_type {family!r} does not use the attention interface in layer {missing[0]} "
            f"({len(missing)} of {num_layers} layers): it {OWN_ATTENTION}, or {RECURRENT}."
        )
    return [shapes.get(i, NO_KV) for i in range(num_layers)], recorded.seen


@torch.inference_mode()
def _run_recorded(module: Any, device: torch.device, *, notes_masks: bool) -> Recorded:
    token = torch.zeros(1, 1, dtype=torch.int64, device=device)
    with (
        attention.recording_layers(module, notes_masks=notes_masks) as recorded,
        skipping_experts(module),
        skipping_products(module),
    ):
        module(input_ids=token, position_ids=token, use_cache=False)
    return Recorded(dict(recorded.shapes), dict(recorded.seen))


def mixing_nothing(config: Any) -> set[int]:
    """Layers that look at one token at a time, in models whose layers are not all alike."""
    return {i for i, kind in enumerate(config.layer_types) if kind in ("mlp", "moe")}


def read_eos_token_ids(model_dir: Path, config: dict[str, Any]) -> tuple[int, ...]:
    """End-of-sequence tokens of generation_config.json, of config.json and of the tokenizer, all of them: a fine-tune
    often changes only one of the three. Empty if none has any."""
    path = model_dir / checkpoint.GENERATION_CONFIG
    generation_config = checkpoint.read_json(path) if path.is_file() else {}
    found = set(checkpoint.read_tokenizer_eos(model_dir))
    for source in (generation_config, config):
        ids = source.get("eos_token_id")
        if ids is not None:
            found.update(map(int, ids) if isinstance(ids, list) else [int(ids)])
    return tuple(sorted(found))


def _text_part(model_dir: Path, config: dict[str, Any]) -> tuple[WeightSource, dict[str, Any]]:
    """The weights and the config of the language model, which may be inside of another model."""
    text_config = wrapper.text_config(config)
    source = open_weights(model_dir, text_config)
    if not wrapper.is_wrapper(config):
        return source, text_config
    named = {wrapper.text_name(name): weight for name, weight in source.weights.items()}
    weights = {name: replace(weight, name=name) for name, weight in named.items() if name is not None}
    logger.info(
        "%s is served as the text model that it has inside: %d of its %d weights; what is no text is refused",
        config.get("model_type"),
        len(weights),
        len(source.weights),
    )
    # Wrappers' configs and their language models' often differ in this.
    text_config["tie_word_embeddings"] = "lm_head.weight" not in weights
    return replace(source, weights=weights), text_config


def _load_module(
    model_dir: Path,
    text_config: dict[str, Any],
    source: WeightSource,
    dtype: torch.dtype,
    device: torch.device,
    kind: HeadKind,
    quantization: Quantization,
    split: Split | None,
    *,
    splits_head: bool,
) -> tuple[Any, int, str]:
    """The module by transformers' own code: only that knows how a family's checkpoint becomes its parameters. And how
    many of its layers have kept their whole numbers, and in which form."""
    transformers_logging: Any = transformers.utils.logging
    transformers_logging.disable_progress_bar()
    kept = weights = None
    try:
        config = _read_config(model_dir, text_config)
        model_class = _model_class(config, kind)
        if split is not None:
            source = split.localise(config, source, model_class, has_words=kind == HeadKind.WORDS)
            model_class = split.class_of(model_class)
        if quantization != Quantization.NONE:
            round_matrix = rounding(native_kernels())
            kept = KeptWeights(quantization, _without_numbers(model_class, config), fits, round_matrix)
            if source.scheme is not None or quantization != Quantization.AUTO:
                source = with_stacks(source, kept.experts)
        _check_memory(model_dir, source, dtype, device, kept, split)
        weights = LazyWeights(source, dtype, kept, model_class._keep_in_fp32_modules_strict or ())
        with sharing_threads():
            module, report = model_class.from_pretrained(
                None,
                config=config,
                state_dict=weights.state_dict(),
                attn_implementation=attention.IMPLEMENTATION,
                dtype=dtype,
                local_files_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are refused below, by their names
            )
    except Exception as error:  # transformers raises many kinds for a directory that it cannot load
        if weights is not None and weights.failure is not None:
            raise ModelLoadError(f"{model_dir}: {weights.failure}") from error
        if isinstance(error, ModelLoadError):
            raise
        if isinstance(error, KeyError) and error.args == (attention.IMPLEMENTATION,):
            raise ModelLoadError(f"{model_dir} is not supported: it {OWN_ATTENTION}.") from error
        family = text_config["model_type"]
        raise ModelLoadError(
            f"{model_dir} (model_type {family!r}) was refused by transformers: {one_line(error)}"
        ) from error
    _check_report(model_dir, str(text_config["model_type"]), report)
    serve_llama4(module)
    told, num_kept = ("", 0) if kept is None else (kept.told, kept.put_into(module, dtype))
    if split is not None:
        split.join(module, splits_head=splits_head)
    return module, num_kept, told


def _check_report(model_dir: Path, family: str, report: dict[str, Any]) -> None:
    """ModelLoadError where weights are missing or have another shape than the model's."""
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelLoadError(
            f"{model_dir} (model_type {family!r}) lacks the weight {missing[0]} ({len(missing)} are missing)."
        )
    mismatched = sorted(report["mismatched_keys"])
    if mismatched:
        name, stored, wanted = mismatched[0]
        raise ModelLoadError(
            f"{model_dir} (model_type {family!r}) has the weight {name} in the shape {list(stored)}, but its "
            f"config.json says {list(wanted)} ({len(mismatched)} such weights)."
        )


def _check_memory(
    model_dir: Path,
    source: WeightSource,
    dtype: torch.dtype,
    device: torch.device,
    kept: KeptWeights | None,
    split: Split | None,
) -> None:
    """ModelLoadError where the weights do not fit, with those of the other ranks of this host."""
    if split is None:
        num_here, available = 1, available_bytes(device)
    else:  # ahead of what any rank loads: `least` waits for all
        everyone = split.everyone
        num_here, available = everyone.num_here, everyone.least(available_bytes(device))
    check_weights_fit(model_dir, served_bytes(source, dtype, kept) * num_here, dtype, available)


def served_bytes(source: WeightSource, dtype: torch.dtype, kept: KeptWeights | None) -> int:
    """About the bytes that weights take as they are served; `kept` knows which of them stay whole numbers."""
    if kept is None:
        return source.num_elements * dtype.itemsize
    return sum(kept.num_bytes(weight, dtype) for weight in source.weights.values())


def _without_numbers(model_class: Any, config: Any) -> Any:
    """The model on the device that has shapes only."""
    with torch.device("meta"):
        model = model_class(config)
    serve_llama4(model)
    return model


def _read_config(model_dir: Path, text_config: dict[str, Any]) -> Any:
    """transformers' config, without what it would do about quantised weights: they are read here."""
    auto: Any = transformers.AutoConfig
    raw_config = checkpoint.read_json(model_dir / checkpoint.CONFIG)
    family = OTHER_NAMES.get(text_config["model_type"])
    _check_known(model_dir, raw_config, str(family or text_config["model_type"]))
    if wrapper.is_wrapper(raw_config) or family is not None:
        config = auto.for_model(**text_config | ({"model_type": family} if family is not None else {}))
    else:
        config = auto.from_pretrained(model_dir, local_files_only=True, trust_remote_code=False)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    check_keys(config.to_dict(), model_dir / checkpoint.CONFIG)
    return without_indexer(config)


def _check_known(model_dir: Path, raw_config: dict[str, Any], family: str) -> None:
    """ModelLoadError for a model_type that transformers itself has no code for."""
    if family in transformers.CONFIG_MAPPING:
        return
    own = raw_config.get("auto_map")
    reason = (
        "its code is in its own repository (auto_map), and such code never runs here"
        if own
        else f"transformers {transformers.__version__} has no code for it"
    )
    raise ModelLoadError(f"{model_dir}: model_type {family!r} is not served: {reason}.")


def _model_class(config: Any, kind: HeadKind) -> Any:
    """The family's model with such a head. ModelLoadError when it has none in transformers itself."""
    mapping = MODELS[kind]
    if type(config) not in mapping:
        raise ModelLoadError(
            f"model_type {config.model_type!r} has no {kind.name.lower()} head in transformers."
        )
    return mapping[type(config)]
