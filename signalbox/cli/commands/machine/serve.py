"""`signalbox serve`: one service in the foreground, with its own settings."""

from __future__ import annotations

import argparse
import os
import sys

from signalbox.runtime.start.interpreter import module_command

EXAMPLE = """\
services:
  scheduler   decides what runs where; start it first, the others dial it
  worker      runs a model; as many as there are, each with a --worker-id of its own
  frontend    takes requests over HTTP and gRPC

examples:
  signalbox serve scheduler --listen 0.0.0.0:7300 --insecure
  signalbox serve worker --scheduler 10.0.0.5:7300 --model ~/models/Qwen3-0.6B --listen 10.0.0.7:7310
  signalbox serve frontend --scheduler 10.0.0.5:7300 --model ~/models/Qwen3-0.6B --http 0.0.0.0:8000 --insecure
  signalbox serve worker --help

SIGTERM or Ctrl-C stops a service in order. All of them on this machine: `signalbox up`.
"""
MODULES = {"scheduler": "scheduler_svc", "worker": "worker_svc", "frontend": "frontend_svc"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands; all that follows the name are settings of the service."""
    parser.add_argument("service", choices=tuple(MODULES), metavar="SERVICE", help="one of those below")
    parser.add_argument(
        "settings", nargs=argparse.REMAINDER, metavar="...", help="settings of the service (see its --help)"
    )


def run(args: argparse.Namespace) -> int:
    """Becomes the service: signals and exit status are its own."""
    os.execv(sys.executable, module_command(MODULES[args.service], *args.settings))
