"""Whether Triton's kernels can be launched: on a GPU by launching the smallest, elsewhere by compiling it for one."""

from __future__ import annotations

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from worker_svc.runner.triton import launch

TARGET = GPUTarget("cuda", 90, 32)
"""What is compiled for where there is no GPU."""
SIGNATURE = {"place": "*i32", "number": "i32"}


def launch_problem(device: torch.device) -> str | None:
    """Why no kernel could be launched; None: one can, or compiles."""
    problem = launch.launch_error(device)
    if problem is not None or device.type == "cuda":
        return problem
    # The interpreter takes what the compiler refuses, such as annotations with names of Python.
    try:
        triton.compile(ASTSource(JITFunction(launch.write_one.fn), SIGNATURE, {}), target=TARGET)
    except Exception as error:  # of the compiler
        return str(error)
    return None
