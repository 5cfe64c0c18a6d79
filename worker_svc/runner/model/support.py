"""What of a model can be served, as its config.json tells: without torch, before anything is loaded.

`python -m worker_svc.runner.model.support DIR...` prints a line of JSON for each directory, for `signalbox models`,
which imports no service: `family` ("" if unknown), `problem` (why it cannot be served; null: nothing is known against
it), `is_compared` (whether the family is compared with transformers), `scheme` (how its weights are quantised; "": not
at all).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from worker_svc.gguf import summary
from worker_svc.gguf.errors import GgufError
from worker_svc.gguf.parts import open_parts
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model import checkpoint, wrapper
from worker_svc.weights.scheme import read_scheme

OWN_ATTENTION = "has attention code of its own, which cannot read a paged cache"
RECURRENT = "has recurrent layers of a kind that is not known here"
REFUSED_FAMILIES = {
    **dict.fromkeys(("bloom", "codegen", "falcon", "gptj", "gpt_neo", "mpt"), OWN_ATTENTION),
    **dict.fromkeys(("falcon_mamba", "mamba", "mamba2", "minimax"), RECURRENT),
    **dict.fromkeys(("recurrent_gemma", "rwkv", "zamba", "zamba2"), RECURRENT),
}
"""Families known not to work, with the reason. All others are tried: what decides is the probe."""
OTHER_NAMES = {"kimi_k2": "deepseek_v3"}
"""Names of published models that transformers' code knows by another one."""
INDEXED_FAMILIES = frozenset(("deepseek_v32", "glm_moe_dsa"))
"""Families whose layers pick the positions that a query looks at: served where they would pick all."""
INDEX_TOPK = 2048
"""Positions that they pick, where their config does not say."""
HYBRID_FAMILIES = frozenset(
    (
        *("bamba", "falcon_h1", "granitemoehybrid", "jamba", "kimi_linear", "lfm2", "lfm2_moe", "nemotron_h"),
        *("olmo_hybrid", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"),
    )
)
"""Families with recurrent layers, whose states are kept beside the blocks."""
COMPARED_FAMILIES = frozenset(
    (
        *("apertus", "arcee", "cohere", "cohere2", "deepseek_v2", "deepseek_v3", "deepseek_v32"),
        *("ernie4_5", "exaone4"),
        *(
            "gemma",
            "gemma2",
            "gemma3_text",
            "gemma4_text",
            "gemma4_unified_text",
            "glm",
            "glm4",
            "glm4_moe",
            "glm_moe_dsa",
            "gpt2",
            "gpt_neox",
            "gpt_oss",
            "granite",
            "granitemoe",
        ),
        *(
            "hunyuan_v1_dense",
            "llama",
            "llama4_text",
            "minimax_m2",
            "ministral",
            "ministral3",
            "mistral",
            "mixtral",
        ),
        *("nemotron", "olmo"),
        *("olmo2", "olmo3", "phi", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "seed_oss", "smollm3"),
        *("stablelm", "starcoder2"),
        *(
            "aya_vision",
            "gemma3",
            "gemma4",
            "gemma4_unified",
            "internvl",
            "llama4",
            "llava",
            "mistral3",
            "qwen2_5_vl",
            "qwen2_vl",
            "qwen3_5",
            "qwen3_5_moe",
            "qwen3_vl",
        ),
        *HYBRID_FAMILIES,
        *("bert", "camembert", "distilbert", "electra", "modernbert", "roberta", "xlm-roberta"),
    )
)
"""Families whose outputs are compared with transformers, by model_type."""
ROPE_TYPES = ("default", "dynamic", "linear", "llama3", "longrope", "proportional", "su", "yarn")
"""Types of rope that are served. What transformers makes of the longest position of a batch is fixed at load."""
HYBRID_LAYER_TYPES = ("attention", "conv", "linear_attention", "mamba", "mlp", "moe")
"""Layers of these families, as their configs say them."""
LAYER_TYPES = ("full_attention", "sliding_attention")
INDEXED = ("indexed_attention", "deepseek_sparse_attention")
"""What all layers of an indexed family are."""
SPARSE_PREFIXES = ("index_", "indexer_", "compress_ra", "ngram_", "sparse_attention", "sparse_config")
"""How keys begin that have layers pick, compress or look up what a query sees: what would be left out in silence."""
SU_FAMILIES = ("phi3", "phi4_multimodal", "phimoe")
"""Families that know longrope by its older name, `su`."""
CHUNKED, CHUNKED_FAMILIES = "chunked_attention", ("llama4_text",)
"""Layers whose queries look at positions of their own chunk, and the families of which they are known."""


def check_config(config: dict[str, Any], path: Path, max_model_len: int | None = None) -> None:
    """ModelLoadError for what is not served: families known to fail, rope types, layer types, quantisation.

    max_model_len: positions of a request at most; None: as many as the model was made for.
    """
    family = config.get("model_type")
    if not isinstance(family, str):
        raise ModelLoadError(f"{path}: model_type {family!r} is not the name of a family.")
    if (unknown := wrapper.unknown_wrapper(config)) is not None:
        raise ModelLoadError(
            f"{path}: model_type {unknown!r} has a language model inside, but is not known to read text as that would."
        )
    config = wrapper.text_config(config)
    family = config["model_type"]
    if family in REFUSED_FAMILIES:
        raise ModelLoadError(
            f"{path}: model_type {family!r} is not supported: it {REFUSED_FAMILIES[family]}."
        )
    read_scheme(path.parent, config)
    check_keys(config, path)
    for key in ("rope_scaling", "rope_parameters"):
        for rope_type in rope_types(config.get(key)):
            known = [each for each in ROPE_TYPES if each != "su" or family in SU_FAMILIES]
            if rope_type not in known:
                raise ModelLoadError(
                    f"{path}: {key} of type {rope_type!r} is not one of {', '.join(known)} "
                    f"(model_type {family!r})."
                )
    _check_layers(config, path)
    if family in INDEXED_FAMILIES:
        _check_picks_all(config, path, max_model_len)


def check_keys(config: dict[str, Any], path: Path) -> None:
    """ModelLoadError for a key of attention that is not computed here; also to be asked about what transformers makes
    of a config.json that leaves keys out."""
    family = config["model_type"]
    if family in INDEXED_FAMILIES:
        return
    for key, value in sorted(config.items()):
        if key.startswith(SPARSE_PREFIXES) and value:
            raise ModelLoadError(
                f"{path}: {key} of model_type {family!r} belongs to an attention that is not served here: queries "
                "would see other positions than they are meant to."
            )


def _check_layers(config: dict[str, Any], path: Path) -> None:
    """What each layer attends to."""
    family = config["model_type"]
    if config.get("use_bidirectional_attention") in (True, "all"):
        raise ModelLoadError(
            f"{path}: use_bidirectional_attention lets queries look ahead, which a paged cache does not."
        )
    layer_types = config.get("layer_types") or []
    if not isinstance(layer_types, list):
        raise ModelLoadError(f"{path}: layer_types is no list.")
    known: tuple[str, ...] = LAYER_TYPES
    if family in CHUNKED_FAMILIES:
        known = (*known, CHUNKED)
    if family in HYBRID_FAMILIES:
        known = (*known, *HYBRID_LAYER_TYPES)
    if family in INDEXED_FAMILIES:
        known = (*known, *INDEXED)
    for layer_type in layer_types:
        if layer_type not in known:
            raise ModelLoadError(
                f"{path}: layer type {layer_type!r} of model_type {family!r} is not one of {', '.join(known)}."
            )
    chunk = config.get("attention_chunk_size", 1)
    if family in CHUNKED_FAMILIES and (not isinstance(chunk, int) or chunk < 1):
        raise ModelLoadError(f"{path}: attention_chunk_size {chunk!r} is not a number of positions.")


def _check_picks_all(config: dict[str, Any], path: Path, max_model_len: int | None) -> None:
    """An indexer changes nothing while there are no more positions than it picks."""
    num_picked = config.get("index_topk", INDEX_TOPK)
    if not isinstance(num_picked, int) or num_picked < 1:
        raise ModelLoadError(f"{path}: index_topk {num_picked!r} is not a number of positions.")
    longest = max_model_len or config.get("max_position_embeddings")
    if longest is None or longest > num_picked:
        raise ModelLoadError(
            f"{path}: model_type {config['model_type']!r} picks the {num_picked} positions (index_topk) that a query "
            f"looks at, which the paged attention does not know: it is served with a max_model_len of at most "
            f"{num_picked}."
        )


def rope_types(rope: Any) -> list[Any]:
    """The types that a rope setting names; some models have one setting for each type of layer."""
    if rope is None:
        return []
    if not isinstance(rope, dict):
        return [rope]
    nested = [value for value in rope.values() if isinstance(value, dict)]
    if nested:
        return [rope_type for value in nested for rope_type in rope_types(value)]
    return [rope.get("rope_type", rope.get("type", "default"))]


def describe(directory: Path) -> dict[str, Any]:
    """What is known of a directory before its weights are loaded."""
    family, problem, scheme = "", None, ""
    try:
        config = checkpoint.read_json(directory / checkpoint.CONFIG)
        family = str(config.get("model_type", ""))
        check_config(config, directory / checkpoint.CONFIG)
        checkpoint.check_weights(directory)
        scheme = _scheme(directory, wrapper.text_config(config))
    except ModelLoadError as error:
        problem = str(error).replace(f"{directory}/", "").removesuffix(".")
    except RecursionError:
        problem = f"{checkpoint.CONFIG} is nested too deep"
    return {
        "family": family,
        "problem": problem,
        "is_compared": family in COMPARED_FAMILIES,
        "scheme": scheme,
    }


def _scheme(directory: Path, config: dict[str, Any]) -> str:
    """How the weights are quantised, in a few words; empty: not at all."""
    gguf = checkpoint.gguf_file(directory)
    if gguf is None:
        scheme = read_scheme(directory, config)
        return scheme.name if scheme else ""
    try:
        return summary.describe(open_parts(gguf))
    except GgufError as error:
        raise ModelLoadError(f"{error}.") from error


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(json.dumps(describe(Path(argument))))
