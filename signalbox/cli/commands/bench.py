"""`signalbox bench`: measurements that anyone can run again."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from importlib.util import find_spec

from signalbox.cli.main import refuse_unknown
from signalbox.errors import StartupError
from signalbox.runtime.start.interpreter import module_command

EXAMPLE = """\
benchmarks:
  load        any server under load: latencies, throughput, goodput
  serve       a ring of its own on this machine, against transformers and what the machine can do
  scheduler   cost of the scheduler per step, without a network
  plan        a deployment in simulated time
  scale       how many workers one scheduler process keeps busy
  restart     what it costs a new scheduler to take over what runs

examples:
  signalbox bench load grpc://127.0.0.1:7301 --streams 1 8 32
  signalbox bench load http://127.0.0.1:8000 --rate 2 4 8 --duration 30 --slo ttft-ms=500,itl-ms=50
  signalbox bench serve --streams 1 32 --reference
  signalbox bench scheduler --running 64 1024 --speculative 4
  signalbox bench scheduler --plot scheduler.svg    # also of load and serve
  signalbox bench load --help
"""
COMMANDS = {"load": "signalbox.benchmarks.load.command", "serve": "signalbox.benchmarks.serve.command"}
"""Benches that are run in this process, by their names."""
MODULES = {
    "scheduler": "signalbox.benchmarks.scheduler.step",
    "plan": "signalbox.benchmarks.scheduler.plan",
    "scale": "signalbox.benchmarks.scheduler.scale",
    "restart": "signalbox.benchmarks.scheduler.restart",
}
"""Belong to the service that they measure, and become our process."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands; all that follows the name goes to the benchmark."""
    parser.add_argument(
        "benchmark", choices=(*COMMANDS, *MODULES), metavar="BENCHMARK", help="one of those below"
    )
    parser.add_argument(
        "options", nargs=argparse.REMAINDER, metavar="...", help="options of the benchmark (see its --help)"
    )


def run(args: argparse.Namespace) -> int:
    """Runs the benchmark and returns its exit status. Raises StartupError where the benches are not installed."""
    if find_spec("signalbox.benchmarks") is None:
        raise StartupError("the benches are in no wheel; run them from a checkout (make install)")
    if args.benchmark in MODULES:
        os.execv(sys.executable, module_command(MODULES[args.benchmark], *args.options))
    command = import_module(COMMANDS[args.benchmark])
    parser = argparse.ArgumentParser(
        prog=f"signalbox bench {args.benchmark}",
        description=_description(command.__doc__ or ""),
        epilog=command.EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    options, unknown = parser.parse_known_args(args.options)
    if unknown:
        refuse_unknown(parser, unknown[0])
    return int(command.run(options))


def _description(docstring: str) -> str:
    """What stands behind the name of the command."""
    text = docstring.partition("`: ")[2]
    return text[:1].upper() + text[1:]
