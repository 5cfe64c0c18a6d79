"""`signalbox bench`: measurements that anyone can run again. Each runs as a process of the service that it measures."""

from __future__ import annotations

import argparse
import subprocess
import sys

EXAMPLE = """\
examples:
  signalbox bench scheduler --running 64 1024 --speculative 4
  signalbox bench scale --workers 50 --running 256 --step-ms 20
  signalbox bench scheduler --help
"""
MODULES = {
    "scheduler": ("scheduler_svc.bench", "cost of the scheduler per step, without a network"),
    "plan": ("scheduler_svc.bench_plan", "a deployment in simulated time"),
    "scale": ("scheduler_svc.bench_scale", "how many workers one scheduler process keeps busy"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands; all that follows the name goes to the benchmark."""
    kinds = "; ".join(f"{name}: {summary}" for name, (_, summary) in MODULES.items())
    parser.add_argument("benchmark", choices=MODULES, help=kinds)
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of the benchmark (see its --help)")


def run(args: argparse.Namespace) -> int:
    """Runs the benchmark and returns its exit status."""
    module, _ = MODULES[args.benchmark]
    return subprocess.run([sys.executable, "-m", module, *args.options], check=False).returncode
