"""Products of the CPU's kernels: weights of 16 bits against the same kept in 8 and in 4, for few rows and for many.

    python -m signalbox.benchmarks.runner.products --threads 1 --rows 1 8 32 128 512 [--beside LIBRARY]

Random weights. Prints a JSON line for each shape and form: GFLOP/s by number of rows, of the fastest call of many, with
weights in the caches where they fit. `--beside` names another build of the kernels, measured in turns with this one.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from worker_svc.runner.attention.attention import native_kernels
from worker_svc.runner.cpu.native.kernels import Kernels
from worker_svc.runner.cpu.native_linear import PackedWeight
from worker_svc.runner.cpu.packed_codes import PackedCodes
from worker_svc.weights.quantised import QuantisedMatrix

GROUP = 32
FORMS = ("bfloat16", "int8", "int4", "int4_offsets", "e2m1")

Product = Callable[[Kernels, torch.Tensor], torch.Tensor]


class Shape(NamedTuple):
    """A matrix, as `576x1536` says it."""

    inputs: int
    outputs: int

    @staticmethod
    def parse(text: str) -> Shape:
        """ValueError if it is not two numbers."""
        inputs, outputs = map(int, text.split("x"))
        return Shape(inputs, outputs)


DEFAULT_SHAPES = (Shape(576, 960), Shape(576, 3072), Shape(1536, 576), Shape(2048, 8192))
"""Three of SmolLM2's products and one of a model with a billion parameters."""


def make_matrix(shape: Shape, form: str) -> QuantisedMatrix:
    """Random codes and scales."""
    most = 128 if form == "int8" else 8
    codes = torch.randint(-most, most, (shape.outputs, shape.inputs), dtype=torch.int8)
    scales = (torch.rand(shape.outputs, shape.inputs // GROUP) * 0.01 + 0.001).half().float()
    offsets = scales.clone() if form == "int4_offsets" else None
    return QuantisedMatrix(codes, scales, offsets, 8 if form == "int8" else 4, GROUP, form == "e2m1")


def make_product(shape: Shape, form: str) -> Product:
    """The product with a random matrix in that form."""
    if form == "bfloat16":
        weight = PackedWeight(torch.randn(shape.outputs, shape.inputs).bfloat16())
        return lambda kernels, x: kernels.linear(x, weight.call)
    codes = PackedCodes(make_matrix(shape, form))
    return lambda kernels, x: kernels.linear_quantised(x, codes.call)


def measure(
    builds: dict[str, Kernels], shape: Shape, forms: list[str], rows: list[int], seconds: float
) -> dict[str, dict[str, dict[int, float]]]:
    """GFLOP/s by form, build and number of rows; `seconds` are spent for each of these."""
    figures: dict[str, dict[str, dict[int, float]]] = {}
    for form in forms:
        product = make_product(shape, form)
        figures[form] = {name: {} for name in builds}
        for count in rows:
            x = torch.randn(count, shape.inputs).bfloat16()
            least = dict.fromkeys(builds, float("inf"))
            end = time.perf_counter() + seconds * len(builds)
            while time.perf_counter() < end:
                for name, kernels in builds.items():
                    product(kernels, x)  # what the other one left in the caches is not this one's
                    start = time.perf_counter()
                    product(kernels, x)
                    least[name] = min(least[name], time.perf_counter() - start)
            for name, taken in least.items():
                figures[form][name][count] = round(2e-9 * count * shape.inputs * shape.outputs / taken, 1)
    return figures


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", type=Shape.parse, nargs="+", default=DEFAULT_SHAPES)
    parser.add_argument("--forms", choices=FORMS, nargs="+", default=FORMS)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 16, 32, 64, 128, 512])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.15)
    parser.add_argument("--beside", type=Path, help="another build of the kernels")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    here = native_kernels()
    if here is None:
        raise SystemExit("there are no native kernels on this machine")
    builds = {"here": here}
    if options.beside:
        builds["beside"] = Kernels(ctypes.CDLL(str(options.beside.resolve())))
    for shape in options.shapes:
        for form, figures in measure(builds, shape, options.forms, options.rows, options.seconds).items():
            for name, by_rows in figures.items():
                told = {"shape": f"{shape.inputs}x{shape.outputs}", "form": form, "build": name}
                print(json.dumps(told | {"gflops": by_rows}))


if __name__ == "__main__":
    main()
