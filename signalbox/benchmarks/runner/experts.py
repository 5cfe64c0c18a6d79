"""Experts of one layer in bfloat16 against the same kept as whole numbers, on the CPU's kernels.

    python -m signalbox.benchmarks.runner.experts --family gpt_oss --threads 2 --rows 1 8 32

Random weights. Prints a JSON line for each form: bytes, and milliseconds of a call with so many rows, the fastest of
`--repeats`, in turns, with other memory read between them.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch
import transformers
from torch import nn

from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.cpu.experts.code_stack import CodeStack
from worker_svc.runner.cpu.experts.fused_experts import FusedExperts
from worker_svc.runner.cpu.experts.kinds import PARAMETERS, is_experts, width_of
from worker_svc.runner.cpu.experts.order import gate_up_order
from worker_svc.runner.model.quantised_experts import QuantisedExperts
from worker_svc.weights.quantised import QuantisedMatrix

SHAPES: dict[str, dict[str, int]] = {
    "qwen3_moe": {
        "hidden_size": 1024,
        "moe_intermediate_size": 512,
        "num_experts": 32,
        "num_experts_per_tok": 8,
    },
    "gpt_oss": {
        "hidden_size": 1440,
        "intermediate_size": 1440,
        "num_local_experts": 16,
        "num_experts_per_tok": 4,
    },
}
"""Shapes of layers; that of gpt-oss is half as long as the published ones."""
FORMS = ("bfloat16", "int8", "int4", "e2m1")
OTHER_BYTES = 48 << 20
"""Memory that is read between two calls: more than a core's own cache."""


def make_experts(family: str) -> Any:
    """transformers' experts of one layer, in bfloat16."""
    config: Any = transformers.AutoConfig.for_model(
        family, num_hidden_layers=1, vocab_size=64, **SHAPES[family]
    )
    models: Any = transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = models.from_config(config)
    experts: Any = next(module for module in model.modules() if is_experts(module))
    experts = experts.to(torch.bfloat16).to_empty(device="cpu")
    for parameter in experts.parameters():
        nn.init.normal_(parameter, std=0.03)
    return experts


def make_kept(experts: Any, form: str) -> QuantisedExperts:
    """Experts of such a shape with random codes."""
    stacks = {}
    for name in PARAMETERS:
        shape = getattr(experts, name).shape
        outputs, inputs = shape[:0:-1] if experts.is_transposed else shape[1:]
        order = None
        if name == PARAMETERS[0]:
            order = gate_up_order(width_of(experts), is_concatenated=experts.is_concatenated)
        matrix = make_matrix(outputs, inputs, form)
        stacks[name] = CodeStack(shape[0], ([matrix] * shape[0]).__getitem__, order)
    return QuantisedExperts(experts, stacks, torch.bfloat16)


def make_matrix(outputs: int, inputs: int, form: str) -> QuantisedMatrix:
    """Random codes and scales, in groups of 32."""
    bits = 8 if form == "int8" else 4
    codes = torch.randint(-(1 << bits - 1), 1 << bits - 1, (outputs, inputs), dtype=torch.int8)
    scales = (torch.rand(outputs, inputs // 32) * 0.01 + 0.001).half().float()
    return QuantisedMatrix(codes, scales, None, bits, 32, is_e2m1=form == "e2m1")


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", choices=SHAPES, default="qwen3_moe")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    kernels = native_kernels()
    if kernels is None:
        raise SystemExit("there are no native kernels on this machine")
    fused = {}
    for form in FORMS:
        experts = make_experts(options.family)
        fused[form] = FusedExperts(experts if form == "bfloat16" else make_kept(experts, form), kernels)
    times = measure(fused, options.family, options.rows, options.repeats)
    for form, module in fused.items():
        print(json.dumps({"form": form, "bytes": module.weight_bytes, "ms": times[form]}))


def measure(
    fused: dict[str, FusedExperts], family: str, rows: list[int], repeats: int
) -> dict[str, dict[int, float]]:
    """Least time of a call, by form and number of rows."""
    hidden, num_chosen = SHAPES[family]["hidden_size"], SHAPES[family]["num_experts_per_tok"]
    other = torch.zeros(OTHER_BYTES, dtype=torch.uint8)
    times: dict[str, dict[int, float]] = {form: dict.fromkeys(rows, float("inf")) for form in fused}
    for _ in range(repeats):
        for count in rows:
            x = torch.randn(count, hidden).bfloat16()
            weights = torch.full((count, num_chosen), 1 / num_chosen)
            for form, module in fused.items():
                random = torch.Generator().manual_seed(count)
                chosen = torch.rand(count, module.num_experts, generator=random).argsort(1)[:, :num_chosen]
                other.add_(1)
                start = time.perf_counter()
                module(x, chosen, weights)
                taken = round((time.perf_counter() - start) * 1e3, 3)
                times[form][count] = min(times[form][count], taken)
    return times


if __name__ == "__main__":
    main()
