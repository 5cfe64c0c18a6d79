"""`signalbox models`: what is in the caches of this machine, and whether it can be served."""

from __future__ import annotations

import argparse
import dataclasses
import json

from signalbox.cli.models.cache import megabytes
from signalbox.cli.models.inventory import KeptModel, Support, judge, list_models
from signalbox.cli.table import render

EXAMPLE = """\
examples:
  signalbox models
  signalbox models --json               # with the directories

Those that were pulled, and those in the cache of the Hugging Face hub (HF_HOME). `yes` is for families whose outputs
are compared with transformers, `perhaps` for others: what decides is the probe when a worker loads them.
"""
HEADS = ("model", "family", "weights", "can be served", "MB")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    parser.add_argument("--json", action="store_true", help="print a list as JSON")


def run(args: argparse.Namespace) -> int:
    """Lists; nothing is loaded."""
    models = list_models()
    judged = list(zip(models, judge(models), strict=True))
    if args.json:
        print(json.dumps([_as_json(*each) for each in judged], indent=2))
    elif not judged:
        print("no model is here yet; this fetches one: signalbox pull smollm2")
    else:
        print("\n".join(render([HEADS, *(_row(*each) for each in judged)], len(HEADS) - 1)))
    return 0


def _row(model: KeptModel, support: Support) -> tuple[str, ...]:
    return (
        model.name,
        support.family or "-",
        support.scheme or "-",
        _answer(support),
        str(megabytes(model.num_bytes)),
    )


def _answer(support: Support) -> str:
    if support.problem is not None:
        return f"no: {support.problem}"
    return "yes" if support.is_compared else "perhaps"


def _as_json(model: KeptModel, support: Support) -> dict[str, object]:
    kept = dataclasses.asdict(model) | {"directory": str(model.directory)}
    return kept | dataclasses.asdict(support)
