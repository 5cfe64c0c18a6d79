"""The stage `right`: each preset in each way of serving, against transformers."""

from __future__ import annotations

import gc
import shutil
import tempfile
import traceback
from pathlib import Path

import torch

from benchmarks.gpu.context import Context
from benchmarks.gpu.right.kernels import launch_problem
from benchmarks.gpu.right.preset import Case, TinyModel
from benchmarks.gpu.right.sizes import RightSizes, sizes_on
from benchmarks.gpu.speed.timer import synchronize
from worker_svc.runner.cuda.captures import Capture

LEAST_S = 10.0
"""No preset is begun with less time left."""


def run(context: Context) -> None:
    """Writes a line for each case, and one for each preset that could not be served at all. Fails with wrong tokens,
    with cases that were not what they say, without graphs, and at once where no kernel can be launched."""
    order, sizes = context.order, sizes_on(context.order.device)
    problem = launch_problem(torch.device(order.device))
    context.line("kernels", launches=problem is None, problem=problem)
    if problem is not None:
        context.fail(f"Triton cannot launch a kernel: {problem}")
        return
    folder = Path(tempfile.mkdtemp(dir=order.work_dir))
    left_out = []
    for preset in order.presets or sizes.presets:
        if context.left_s < LEAST_S:
            left_out.append(preset)
            continue
        try:
            run_preset(context, preset, folder, sizes)
        except (
            Exception
        ) as error:  # of the product, of transformers or of the device: the next preset may be right
            traceback.print_exc()
            context.line(
                "case", preset=preset, case="load or serve", problem=f"{type(error).__name__}: {error}"
            )
            context.fail(f"{preset}: {type(error).__name__}: {error}")
            synchronize(
                torch.device(order.device)
            )  # raises where the device is lost: no other preset can run
        gc.collect()
        shutil.rmtree(folder / preset, ignore_errors=True)
    if left_out:
        context.fail(f"not run for want of time: {', '.join(left_out)}")


def run_preset(context: Context, preset: str, folder: Path, sizes: RightSizes) -> None:
    """One preset, loaded once."""
    model = TinyModel(preset, folder, context.order.device, sizes, stand_in(context))
    graphs = model.runner.num_graphs
    for case in model.cases():
        context.line("case", preset=preset, graphs=graphs, **values_of(case))
        if case.problem:
            context.fail(f"{preset}, {case.name}: {case.problem}")
        if case.agreement is not None and case.agreement.wrong:
            wrong, tokens = case.agreement.wrong, case.agreement.tokens
            context.fail(f"{preset}, {case.name}: {wrong} of {tokens} tokens are wrong")
    lost = len(model.runner.decode_sizes) - model.runner.num_graphs
    if lost:  # a step without its graph is right, and slow
        context.fail(f"{preset}: {lost} decode steps have no graph, or had to give it up; the log says why")


def stand_in(context: Context) -> Capture | None:
    """How steps are captured where there is no GPU."""
    if context.order.is_gpu:
        return None
    from benchmarks.gpu.right.stand_in import StandInCapture  # noqa: PLC0415 (needs Triton's interpreter)

    return StandInCapture()


def values_of(case: Case) -> dict[str, str | int | float | None]:
    """A case as a line of the report."""
    agreement = case.agreement
    if agreement is None:
        return {"case": case.name, "note": f"not run: {case.note}"}
    return {
        "case": case.name,
        "tokens": agreement.tokens,
        "equal": agreement.equal,
        "near_ties": agreement.near_ties,
        "wrong": agreement.wrong,
        "largest_gap": agreement.largest_gap,
        "note": case.note,
        "problem": case.problem,
    }
