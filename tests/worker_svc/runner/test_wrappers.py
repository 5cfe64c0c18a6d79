"""Models that also see, served as the text models that they have inside: as transformers runs the whole on text."""

from __future__ import annotations

import json
import logging
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.worker_svc.runner.reference import (
    assert_same_but_for_ties,
    is_greedy,
    make_prompts,
    make_runner,
)
from tests.worker_svc.runner.runner_harness import Driver
from tools.hybrid_families import DELTA, EXPERTS
from tools.make_random_model import fill_weights
from tools.tiny_families import CHUNKS, GEMMA4, GEMMA4_SHARED, PADDED, TINY, WINDOWS
from worker_svc.runner.cpu.fused import FusedAttention
from worker_svc.runner.errors import ModelLoadError
from worker_svc.runner.model import support

NUM_TOKENS = 24
VISION = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
SIGLIP = VISION | {"image_size": 28, "patch_size": 14}
QWEN_VISION = {"depth": 1, "num_heads": 2, "hidden_size": 32, "out_hidden_size": 64, "intermediate_size": 32}
MROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
INTERLEAVED = MROPE | {"mrope_interleaved": True, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}
IMAGES = {
    "image_token_id": 500,
    "video_token_id": 501,
    "vision_start_token_id": 502,
    "vision_end_token_id": 503,
}
SOUNDS = {
    "image_token_id": 500,
    "video_token_id": 501,
    "audio_token_id": 502,
    "boi_token_id": 503,
    "eoi_token_id": 504,
    "boa_token_id": 505,
    "eoa_token_index": 506,
}
WRAPPERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3": (
        "Gemma3",
        {
            "text_config": TINY | WINDOWS | {"query_pre_attn_scalar": 16},
            "vision_config": SIGLIP,
            "mm_tokens_per_image": 4,
        },
    ),
    "gemma4": (
        "Gemma4",
        {
            "text_config": TINY
            | GEMMA4
            | {"attention_k_eq_v": True, "use_bidirectional_attention": "vision"}
            | {"final_logit_softcapping": 30.0},
            "vision_config": VISION | {"num_key_value_heads": 2, "head_dim": 16},
        }
        | SOUNDS,
    ),
    "gemma4-shared": (
        "Gemma4",
        {
            "text_config": TINY | GEMMA4_SHARED,
            "vision_config": VISION | {"num_key_value_heads": 2, "head_dim": 16},
        }
        | SOUNDS,
    ),
    "gemma4-unified": (
        "Gemma4Unified",
        {
            "text_config": TINY | GEMMA4 | {"attention_k_eq_v": True},
            "vision_config": {"mm_embed_dim": 64, "mm_posemb_size": 16},
        }
        | SOUNDS,
    ),
    "mistral3": (
        "Mistral3",
        {
            "text_config": TINY | {"model_type": "mistral"},
            "vision_config": SIGLIP | {"model_type": "pixtral"},
        },
    ),
    "mistral3-ministral3": (
        "Mistral3",
        {
            "text_config": TINY
            | {"model_type": "ministral3"}
            | {
                "rope_parameters": {
                    "rope_type": "yarn",
                    "rope_theta": 10000.0,
                    "factor": 32.0,
                    "original_max_position_embeddings": 16,
                    "llama_4_scaling_beta": 0.3,
                }
            },
            "vision_config": SIGLIP | {"model_type": "pixtral"},
        },
    ),
    "llama4": (
        "Llama4",
        {
            "text_config": TINY | CHUNKS,
            "vision_config": VISION
            | {"image_size": 28, "patch_size": 14, "vision_output_dim": 32}
            | {"projector_input_dim": 32, "projector_output_dim": 32},
        },
    ),
    "llava": ("Llava", {"text_config": TINY | {"model_type": "llama"}, "vision_config": SIGLIP}),
    "internvl": (
        "InternVL",
        {"text_config": TINY | {"model_type": "qwen3"}, "vision_config": VISION | {"image_size": [28, 28]}},
    ),
    "aya_vision": (
        "AyaVision",
        {"text_config": TINY | WINDOWS | PADDED | {"model_type": "cohere2"}, "vision_config": SIGLIP},
    ),
    "qwen2_vl": (
        "Qwen2VL",
        {
            "text_config": TINY | {"rope_parameters": MROPE},
            "vision_config": {"depth": 1, "num_heads": 2, "embed_dim": 32, "hidden_size": 64},
        }
        | IMAGES,
    ),
    "qwen2_5_vl": (
        "Qwen2_5_VL",
        {"text_config": TINY | {"rope_parameters": MROPE}, "vision_config": QWEN_VISION} | IMAGES,
    ),
    "qwen3_vl": (
        "Qwen3VL",
        {
            "text_config": TINY | {"rope_parameters": MROPE | {"mrope_interleaved": True}},
            "vision_config": QWEN_VISION | {"deepstack_visual_indexes": [0], "num_position_embeddings": 16},
        }
        | IMAGES,
    ),
    "qwen3_5": (
        "Qwen3_5",
        {
            "text_config": TINY | DELTA | {"rope_parameters": INTERLEAVED},
            "vision_config": QWEN_VISION | {"num_position_embeddings": 16},
        }
        | IMAGES,
    ),
    "qwen3_5_moe": (
        "Qwen3_5Moe",
        {
            "text_config": TINY | DELTA | EXPERTS | {"rope_parameters": INTERLEAVED},
            "vision_config": QWEN_VISION | {"num_position_embeddings": 16},
        }
        | IMAGES,
    ),
}
PUBLISHED = {
    "older": [("model.language_model.", "language_model.model."), ("lm_head.", "language_model.lm_head.")],
    "flat": [("model.language_model.", "model.")],
    "today": [("", "")],
}
"""How names of a whole checkpoint's weights begin where transformers 5 writes others."""


@cache
def whole_model(name: str) -> Any:
    """A random model with vision and text."""
    family, settings = WRAPPERS[name]
    config = getattr(transformers, f"{family}Config")(**settings)
    has_own_head = not family.startswith("Gemma4")
    config.tie_word_embeddings = config.text_config.tie_word_embeddings = not has_own_head
    torch.manual_seed(0)
    kind = "ForConditionalGeneration"
    model = getattr(transformers, f"{family}{kind}")._from_config(config, attn_implementation="eager")
    fill_weights(model, torch.Generator().manual_seed(1))
    model.generation_config.eos_token_id = None
    return model.eval()


def save_as(model: Any, path: Path, published: str) -> None:
    """Writes the model with the names of weights that checkpoints on the hub have."""
    model.save_pretrained(path)
    file = path / "model.safetensors"
    tensors = {}
    for name, tensor in load_file(file).items():
        inner = name.replace("language_model.model.", "model.language_model.", 1)
        inner = inner.replace("language_model.lm_head.", "lm_head.", 1)
        for prefix, other in PUBLISHED[published]:
            if inner.startswith(prefix):
                inner = other + inner.removeprefix(prefix)
                break
        tensors[inner] = tensor
    save_file(tensors, file, {"format": "pt"})


def as_transformers(model: Any, prompt: list[int]) -> tuple[list[int], torch.Tensor]:
    """Greedy output of the whole model on text, and its logits."""
    result = model.generate(
        torch.tensor([prompt]),
        max_new_tokens=NUM_TOKENS,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        pad_token_id=0,
    )
    return result.sequences[0, len(prompt) :].tolist(), torch.cat(result.logits)


def ties_with(model: Any, prompt: list[int], output: list[int]) -> int:
    """0 where it is the whole model's greedy output, 1 where a near tie was decided otherwise."""
    assert len(output) == NUM_TOKENS
    if is_greedy(model, prompt, output):
        return 0
    return assert_same_but_for_ties(output, *as_transformers(model, prompt))


@pytest.mark.parametrize(
    ("name", "published"),
    [(name, "today") for name in WRAPPERS]
    + [("gemma3", "older"), ("mistral3", "older"), ("llava", "older"), ("qwen2_5_vl", "flat")],
)
def test_text_is_read_as_by_the_whole_model(
    tmp_path: Path, name: str, published: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Chunks and preemptions, mixed batches, prompts longer than windows; names of weights as published."""
    model = whole_model(name)
    save_as(model, tmp_path, published)
    with caplog.at_level(logging.INFO):
        runner = make_runner(tmp_path)
    assert f"{model.config.model_type} is served as the text model" in caplog.text
    assert not [r for r in caplog.records if "without fused modules" in r.message]
    assert support.describe(tmp_path)["problem"] is None
    if name.startswith(("qwen2", "qwen3_vl", "gemma3", "llava", "internvl")):
        assert any(isinstance(module, FusedAttention) for module in runner.model.module.modules())
    driver = Driver(runner)
    prompts = [prompt[:40] for prompt in make_prompts((1, 5, 17, 40))]
    requests = [driver.add([token % 499 for token in prompt], NUM_TOKENS) for prompt in prompts]
    driver.run(chunk_size=15, preemptions=1)
    ties = sum(ties_with(model, r.tokens[: r.num_prompt], r.output) for r in requests)
    assert ties <= 1


def test_a_tied_head_is_the_embedding_whatever_the_fields_say(tmp_path: Path) -> None:
    """What has no head of its own in the checkpoint has the embedding for one."""
    model = whole_model("mistral3")
    save_as(model, tmp_path, "older")
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    head = tensors.pop("language_model.lm_head.weight")
    assert head.shape == tensors["language_model.model.embed_tokens.weight"].shape
    save_file(tensors, file, {"format": "pt"})
    module: Any = make_runner(tmp_path).model.module
    assert module.config.tie_word_embeddings


def test_end_tokens_of_wrapper_and_text_model_are_all_known(tmp_path: Path) -> None:
    """Gemma 3's wrapper names the end of a turn, its text model only the end of a text."""
    save_as(whole_model("gemma3"), tmp_path, "older")
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["eos_token_id"] = [1, 106]
    path.write_text(json.dumps(config))
    assert {1, 106, TINY["eos_token_id"]} <= set(make_runner(tmp_path).model.eos_token_ids)


@pytest.mark.parametrize("family", ["paligemma", "mllama", "somebodys_own"])
def test_other_wrappers_are_refused_by_name(tmp_path: Path, family: str) -> None:
    """PaliGemma looks ahead within a prompt, Llama 3.2 Vision has layers that look at images only."""
    config = {"model_type": family, "text_config": {"model_type": "llama"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelLoadError, match=f"'{family}' has a language model inside"):
        make_runner(tmp_path)
