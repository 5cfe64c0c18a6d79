"""Checks and measures this checkout on a machine with a GPU: `python -m benchmarks.gpu --minutes 7 [--model DIR]`.

Needs no network. Runs on the machine's own torch, triton and transformers; what is missing besides comes as a folder of
wheels (`make gpu-wheels`, dist/gpu-wheels). Writes one Markdown file, again after each stage, with the raw lines beside
it (.jsonl) and what the processes print (.log).

  right     tiny models in float32 against transformers: in chunks, preempted, cached, with drafts, forms, handed over
  memory    what a model and its cache take, against what was asked for
  decode    decode steps against the time to read their bytes; which kernels; whether company changes tokens
  mixed     a chunk of a prompt beside rows that decode
  sampling  rows that are not greedy
  prompts   steps that compute prompts
  ring      scheduler, worker and frontend, over HTTP

Exit status: 0 when all stages succeeded, 1 when one failed, 2 when nothing could begin.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shlex
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.gpu import wheels
from benchmarks.gpu.order import Order
from benchmarks.gpu.report import markdown
from benchmarks.gpu.results import Results
from benchmarks.gpu.running import Run
from benchmarks.gpu.stage_list import MACHINE, NAMES, Stage, stage_of

ROOM = 20 << 30
"""Bytes of shared memory from which on a model is written there, where it is read fastest."""
SHARED_MEMORY = Path("/dev/shm")
MOST_CHARACTERS = 300
"""Longest text of a failure on the terminal; the file has the whole text."""


class RefusedError(Exception):
    """Nothing can begin; the message is a sentence for the caller."""


def main() -> int:
    """Runs what the command line asks for."""
    args = _parser().parse_args()
    signal.signal(signal.SIGTERM, _end)
    try:
        stages = _check(args)
    except RefusedError as refusal:
        print(f"benchmarks.gpu: {refusal}", file=sys.stderr)
        return 2
    work_dir = Path(tempfile.mkdtemp(prefix="gpu-bench-", dir=_fast_folder()))
    try:
        order = Order(args.device, work_dir, args.model and args.model.absolute(), tuple(args.presets))
        return _run(args, order, stages)
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add: Any = parser.add_argument
    add("--minutes", type=float, default=7.0, metavar="M", help="for all stages together (%(default)g)")
    add("--model", type=Path, metavar="DIR", help="model of the stages from `memory` on (random weights)")
    add(
        "--stages", nargs="+", default=list(NAMES), metavar="STAGE", help="some of them, in their order (all)"
    )
    add("--presets", nargs="+", default=[], metavar="NAME", help="tiny models of `right` (all families)")
    add(
        "--device", default="cuda", choices=("cuda", "cpu"), help="cpu: the interpreter, at tiny sizes (cuda)"
    )
    add("--out", type=Path, default=Path("gpu-bench.md"), metavar="FILE", help="(%(default)s)")
    add("--wheels", type=Path, default=wheels.FOLDER, metavar="DIR", help="(dist/gpu-wheels of the checkout)")
    return parser


def _check(args: argparse.Namespace) -> list[Stage]:
    """The stages to run, that of the machine first. Raises RefusedError."""
    unknown = [name for name in args.stages if name not in NAMES]
    if unknown:
        raise RefusedError(f"there is no stage {unknown[0]!r}: the stages are {', '.join(NAMES)}")
    if not args.minutes > 0:
        raise RefusedError(f"--minutes {args.minutes:g} is not above 0")
    if args.model is not None and not (args.model / "config.json").is_file():
        raise RefusedError(f"the model directory {args.model} does not exist, or has no config.json")
    if not args.out.absolute().parent.is_dir():
        raise RefusedError(f"the directory of --out, {args.out.absolute().parent}, does not exist")
    if args.device == "cuda" and not has_gpu():
        raise RefusedError("no CUDA device is here; --device cpu runs the interpreter at tiny sizes")
    wheels.use(args.wheels)
    missing = wheels.missing()
    if own := [package for package in missing if package in wheels.OF_THE_MACHINE]:
        raise RefusedError(f"{', '.join(own)} cannot be imported, and have to be the machine's own")
    if missing:
        raise RefusedError(
            f"{', '.join(missing)} cannot be imported: run `make gpu-wheels` where there is a network, and bring its"
            f" folder as {args.wheels}"
        )
    chosen = [stage_of(name) for name in NAMES if name in args.stages]
    return [replace(MACHINE, group=chosen[0].group), *chosen]


def has_gpu() -> bool:
    """Whether the driver knows a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def _run(args: argparse.Namespace, order: Order, stages: list[Stage]) -> int:
    out, command = args.out, shlex.join(["python", "-m", "benchmarks.gpu", *sys.argv[1:]])
    results, log = Results(out.with_suffix(".jsonl")), out.with_suffix(".log")
    results.begin()
    log.write_bytes(b"")

    def write(name: str) -> None:
        out.write_text(markdown(results, stages[1:], command))
        outcome = results.outcomes[name]
        first = " ".join(outcome.failures[0].split())[:MOST_CHARACTERS] if outcome.failures else ""
        verdict = f"failed: {first}" if first else "ended well"
        print(f"{name} {verdict} ({outcome.seconds:g} s)", flush=True)

    Run(order, results, log, _environment(order), write).run(stages, args.minutes * 60)
    print(f"written: {out}")
    return 1 if results.failed else 0


def _environment(order: Order) -> dict[str, str]:
    """Of the processes of stages; on a CPU Triton interprets its kernels there."""
    root = str(wheels.ROOT)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"PYTHONPATH": os.pathsep.join(paths), "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    if not order.is_gpu:
        own |= {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    return dict(os.environ) | own


def _fast_folder() -> Path | None:
    """Shared memory, if a large model has room there; None: the system's folder for temporary files."""
    try:
        return SHARED_MEMORY if shutil.disk_usage(SHARED_MEMORY).free >= ROOM else None
    except OSError:
        return None


def _end(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    raise SystemExit(main())
