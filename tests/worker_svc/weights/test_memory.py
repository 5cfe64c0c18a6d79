"""What loading takes: little more than the model, however its weights are stored."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

HIDDEN, INNER, NUM_LAYERS, VOCABULARY, GROUP = 1024, 4096, 16, 16_000, 128
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": False,
}
MATRICES = {
    **{f"self_attn.{name}_proj": (HIDDEN, HIDDEN) for name in "qkvo"},
    **{f"mlp.{name}_proj": (INNER, HIDDEN) for name in ("gate", "up")},
    "mlp.down_proj": (HIDDEN, INNER),
}
MOST = 1.15
"""What loading may have in memory at most, of the served form; each of the two threads has one matrix in the works."""
MEASURE = """
import resource, sys, threading, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from worker_svc.runner.model import loading
from transformers import LlamaForCausalLM, core_model_loading
core_model_loading.GLOBAL_WORKERS = 2

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

before, peak, done = resident(), 0, False
def watch():
    global peak
    while not done:
        peak = max(peak, resident())
        time.sleep(0.005)
watcher = threading.Thread(target=watch)
watcher.start()
source = loading.open_weights(Path(sys.argv[1]), loading.checkpoint.read_json(Path(sys.argv[1]) / "config.json"))
module = loading.load_model(Path(sys.argv[1]), dtype="bfloat16").module
done = True
watcher.join()
print((peak - before) / (source.num_elements * 2))
"""


def write_shards(directory: Path, form: str) -> None:
    """A Llama of 0.5 GB in bfloat16, of random numbers, a file for each layer."""
    random = torch.Generator().manual_seed(0)
    outer = {
        name: (torch.randn(shape, generator=random) / shape[-1] ** 0.5).to(torch.bfloat16)
        for name, shape in {
            "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
            "lm_head.weight": (VOCABULARY, HIDDEN),
            "model.norm.weight": (HIDDEN,),
        }.items()
    }
    shards = {"outer.safetensors": outer}
    for layer in range(NUM_LAYERS):
        stored = {}
        for name, (outputs, inputs) in MATRICES.items():
            stored |= {
                f"model.layers.{layer}.{name}.{part}": each
                for part, each in FORMS[form](outputs, inputs).items()
            }
        for norm in ("input_layernorm", "post_attention_layernorm"):
            stored[f"model.layers.{layer}.{norm}.weight"] = torch.ones(HIDDEN, dtype=torch.bfloat16)
        shards[f"layer-{layer}.safetensors"] = stored
    for file, tensors in shards.items():
        save_file(tensors, directory / file, metadata={"format": "pt"})
    places = {name: file for file, tensors in shards.items() for name in tensors}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    settings = {} if form == "plain" else {"quantization_config": SETTINGS[form]}
    (directory / "config.json").write_text(json.dumps(CONFIG | settings))


def awq(outputs: int, inputs: int) -> dict[str, torch.Tensor]:
    groups = inputs // GROUP
    return {
        "qweight": torch.randint(-(1 << 31), 1 << 31, (inputs, outputs // 8)).to(torch.int32),
        "qzeros": torch.zeros(groups, outputs // 8, dtype=torch.int32),
        "scales": torch.full((groups, outputs), 0.01, dtype=torch.float16),
    }


def fp8(outputs: int, inputs: int) -> dict[str, torch.Tensor]:
    return {
        "weight": torch.randint(0, 120, (outputs, inputs), dtype=torch.uint8).view(torch.float8_e4m3fn),
        "weight_scale_inv": torch.full((outputs // 128, inputs // 128), 0.01),
    }


def plain(outputs: int, inputs: int) -> dict[str, torch.Tensor]:
    return {"weight": (torch.randn(outputs, inputs) / inputs**0.5).to(torch.bfloat16)}


FORMS = {"plain": plain, "awq": awq, "fp8": fp8}
SETTINGS = {
    "awq": {"quant_method": "awq", "bits": 4, "group_size": GROUP},
    "fp8": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


@pytest.mark.parametrize("form", FORMS)
def test_the_peak_of_loading_is_little_more_than_the_model(tmp_path: Path, form: str) -> None:
    write_shards(tmp_path, form)
    command = [sys.executable, "-c", MEASURE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    share = float(done.stdout)
    print(f"{form}: {share:.3f} of the served form")
    assert share < MOST


@pytest.mark.parametrize(("quantization", "most"), [("none", MOST), ("int4", 1.25)])
def test_the_peak_until_a_model_is_served_is_little_more_than_what_it_has_then(
    tmp_path: Path, quantization: str, most: float
) -> None:
    """Packed for the kernels, own memory and mapped pages together. What the threads work on, 40 MB, is more of a model
    of 200 MB."""
    write_shards(tmp_path, "plain")
    command = [sys.executable, "-m", "signalbox.benchmarks.runner.load_memory", "--model", str(tmp_path)]
    command += ["--quantization", quantization, "--threads", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    print(figures)
    assert figures["peak_of_served"] < most
