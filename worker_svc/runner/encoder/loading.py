"""Loads an encoder with its classification head, and proves that prompts may lie one behind the other."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from worker_svc.runner.encoder import segments
from worker_svc.runner.encoder.segments import Segments
from worker_svc.runner.errors import ModelLoadError, one_line
from worker_svc.runner.model import checkpoint
from worker_svc.runner.model.label_head import HeadKind, LabelHead, read_label_head
from worker_svc.runner.model.loading import choose_device, choose_dtype
from worker_svc.runner.model.memory import available_bytes, check_weights_fit
from worker_svc.runner.model.probe import TOLERANCES, relative_error

FAMILIES = frozenset(
    (
        *("bert", "camembert", "distilbert", "electra", "ernie", "modernbert", "roberta"),
        *("roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl"),
    )
)
"""Encoders that are tried, by model_type: what decides is the probe. All others are tried as decoders."""
PROBE_LENGTHS = (5, 23, 23, 2, 150)
"""Tokens of the prompts of the probe: of equal length and not, and longer than a short sliding window."""


@dataclass(frozen=True)
class LoadedEncoder:
    """An encoder in evaluation mode on its device."""

    module: Any
    """The transformers model: the base model itself, or that under a classification head."""
    head: LabelHead | None
    dtype: torch.dtype
    device: torch.device
    vocab_size: int
    max_positions: int
    """Tokens of the longest prompt."""
    first_position: int
    """Position of a prompt's first token; some families begin behind the padding token's number."""

    @property
    def base(self) -> Any:
        """The model without its head."""
        return self.module if self.head is None else getattr(self.module, self.module.base_model_prefix)

    @property
    def has_token_types(self) -> bool:
        """It tells the parts of a pair apart by token types."""
        return getattr(self.module.config, "type_vocab_size", 0) > 1 and self._takes("token_type_ids")

    def states(
        self, token_ids: torch.Tensor, positions: torch.Tensor, types: torch.Tensor, lengths: list[int]
    ) -> torch.Tensor:
        """`[T, H]` last hidden states of prompts of these lengths, one behind the other; `positions` `[T]` count from 0
        in each."""
        typed = {"token_type_ids": types[None]} if self.has_token_types else {}
        with segments.running(Segments(lengths)):
            output = self.base(
                input_ids=token_ids[None], position_ids=(positions + self.first_position)[None], **typed
            )
        return output.last_hidden_state[0]  # type: ignore[no-any-return]

    def _takes(self, name: str) -> bool:
        return name in inspect.signature(type(self.base).forward).parameters


def is_encoder(model_dir: Path) -> bool:
    """The directory is that of an encoder. ModelLoadError if its config.json cannot be read."""
    path = model_dir / checkpoint.CONFIG
    config = checkpoint.read_json(path) if path.is_file() else {}
    return config.get("model_type") in FAMILIES and not config.get("is_decoder")


def load_encoder(model_dir: Path, *, dtype: str = "auto", device: str = "cpu") -> LoadedEncoder:
    """Loads `model_dir`. Nothing is fetched, and no code in it runs. ModelLoadError if it cannot be served."""
    config = checkpoint.read_json(model_dir / checkpoint.CONFIG)
    checkpoint.check_weights(model_dir)
    if config.get("quantization_config") is not None:
        raise ModelLoadError(f"{model_dir}: quantised weights are not supported.")
    chosen_device = choose_device(device)
    chosen_dtype = choose_dtype(dtype, chosen_device)
    needed = checkpoint.count_elements(model_dir) * chosen_dtype.itemsize
    check_weights_fit(model_dir, needed, chosen_dtype, available_bytes(chosen_device))
    head = read_label_head(model_dir, config)
    if head is not None and head.kind == HeadKind.WORDS:
        raise ModelLoadError(f"{model_dir}: an encoder has no words that could be its score.")
    module = _load_module(model_dir, chosen_dtype, head).to(chosen_device).eval()
    first = _first_position(module, head)
    encoder = LoadedEncoder(
        module=module,
        head=head,
        dtype=chosen_dtype,
        device=chosen_device,
        vocab_size=module.config.vocab_size,
        max_positions=module.config.max_position_embeddings - first,
        first_position=first,
    )
    check_segments(encoder)
    return encoder


def _load_module(model_dir: Path, dtype: torch.dtype, head: LabelHead | None) -> Any:
    loader: Any = _loader(head)
    try:
        module, report = loader.from_pretrained(
            model_dir,
            attn_implementation=segments.IMPLEMENTATION,
            dtype=dtype,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except Exception as error:  # transformers raises many kinds for a directory that it cannot load
        raise ModelLoadError(f"{model_dir} was refused by transformers: {one_line(error)}") from error
    # Embeddings are made of hidden states: the pooler of a base model is not looked at.
    missing = sorted(
        key for key in report["missing_keys"] if head is not None or not key.startswith("pooler.")
    )
    if missing:
        raise ModelLoadError(f"{model_dir} lacks the weight {missing[0]} ({len(missing)} are missing).")
    return module


def _loader(head: LabelHead | None) -> Any:
    if head is None:
        return transformers.AutoModel
    is_whole = head.kind == HeadKind.SEQUENCE
    return (
        transformers.AutoModelForSequenceClassification
        if is_whole
        else transformers.AutoModelForTokenClassification
    )


def _first_position(module: Any, head: LabelHead | None) -> int:
    base = module if head is None else getattr(module, module.base_model_prefix)
    embeddings: Any = getattr(base, "embeddings", None)
    if hasattr(embeddings, "create_position_ids_from_input_ids"):
        return int(embeddings.padding_idx) + 1
    return 0


@torch.inference_mode()
def check_segments(encoder: LoadedEncoder) -> None:
    """Compares prompts that lie one behind the other with each by itself and the model's own attention.

    ModelLoadError if they differ by more than rounding.
    """
    lengths = [min(length, encoder.max_positions) for length in PROBE_LENGTHS]
    numbers = torch.arange(sum(lengths), device=encoder.device)
    token_ids = (numbers * 7919 + 17) % encoder.vocab_size
    padding = getattr(encoder.module.config, "pad_token_id", None)
    token_ids[token_ids == padding] = (0 if padding is None else padding) + 1
    positions = torch.cat([torch.arange(length, device=encoder.device) for length in lengths])
    types = numbers % 2
    together = encoder.states(token_ids, positions, types, lengths)
    encoder.module.set_attn_implementation("eager")
    try:
        typed = {"token_type_ids": types} if encoder.has_token_types else {}
        inputs = {"input_ids": token_ids} | typed
        parts = {name: torch.split(values, lengths) for name, values in inputs.items()}
        alone = torch.cat(
            [
                encoder.base(**{name: split[index][None] for name, split in parts.items()}).last_hidden_state[
                    0
                ]
                for index in range(len(lengths))
            ]
        )
    finally:
        encoder.module.set_attn_implementation(segments.IMPLEMENTATION)
    error = relative_error(together, alone)
    if not error <= TOLERANCES[encoder.dtype]:  # also when it is not a number
        family = encoder.module.config.model_type
        raise ModelLoadError(
            f"model_type {family!r} gives other hidden states with prompts one behind the other than with each alone "
            f"(relative error {error:.2g}, allowed {TOLERANCES[encoder.dtype]:.2g})."
        )
