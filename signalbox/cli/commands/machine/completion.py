"""`signalbox completion`: a script with which a shell completes commands and options."""

from __future__ import annotations

import argparse

from signalbox.errors import StartupError

EXAMPLE = """\
examples:
  signalbox completion bash > ~/.local/share/bash-completion/completions/signalbox
  signalbox completion zsh > "${fpath[1]}/_signalbox"

The script is complete in itself: no Python runs when Tab is pressed. Write it again after an upgrade.
"""
SHELLS = ("bash", "zsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that is to complete")


def run(args: argparse.Namespace) -> int:
    """Prints the script. Raises StartupError when shtab is not installed."""
    try:
        import shtab  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "shtab":
            raise
        raise StartupError("completion needs shtab: pip install 'signalbox[terminal]'") from None
    # Imported here: that file imports this one, by the name of the command.
    from signalbox.cli.main import make_complete_parser  # noqa: PLC0415

    print(shtab.complete(make_complete_parser(), shell=args.shell))
    return 0
