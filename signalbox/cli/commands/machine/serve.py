"""`signalbox serve`: one service in the foreground, with its own settings."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from signalbox.cli.models.name import find_model
from signalbox.cli.ring.ring import flags
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
  signalbox serve worker --model smollm2    # after `signalbox pull smollm2`; --model is as in `signalbox up`
  signalbox serve worker --help

SIGTERM or Ctrl-C stops a service in order. All of them on this machine: `signalbox up`.
"""
NAME_VARIABLE = "SIGNALBOX_WORKER_SERVED_MODEL_NAME"
MODULES = {"scheduler": "scheduler_svc", "worker": "worker_svc", "frontend": "frontend_svc"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands; all that follows the name are settings of the service."""
    parser.add_argument("service", choices=tuple(MODULES), metavar="SERVICE", help="one of those below")
    parser.add_argument(
        "settings", nargs=argparse.REMAINDER, metavar="...", help="settings of the service (see its --help)"
    )


def run(args: argparse.Namespace) -> int:
    """Becomes the service: signals and exit status are its own."""
    os.execv(
        sys.executable, module_command(MODULES[args.service], *with_found_model(args.service, args.settings))
    )


def with_found_model(service: str, settings: Sequence[str]) -> list[str]:
    """The settings with the directory of the model that --model names. A worker that is told no name for clients gets
    that of the model, where the directory has another. Raises StartupError when there is no such model."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--model")
    known, others = parser.parse_known_args(settings)
    if known.model is None:
        return list(settings)
    model = find_model(known.model)
    is_named = any(other.startswith("--served-model-name") for other in others) or NAME_VARIABLE in os.environ
    name = None if is_named or service != "worker" or model.name == model.directory.name else model.name
    return [*others, *flags(model=model.directory, served_model_name=name)]
