"""The command line: `signalbox COMMAND`. One file per command in signalbox/cli/commands.

Only the file of the command that was asked for is imported: `signalbox --help` stays quick.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Mapping, Sequence
from errno import EDQUOT, ENOSPC
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, NoReturn

from signalbox import __version__
from signalbox.cli.identity import take_identity
from signalbox.errors import SignalboxError, StartupError
from signalbox.runtime.removed import refusal, refuse_command
from signalbox.runtime.start import streams


class Command(NamedTuple):
    """Where a command is written, and its one line in `--help`."""

    module: str
    """Its module in signalbox.cli.commands."""
    summary: str


COMMANDS = {
    "up": Command("machine.up", "start scheduler, workers and frontend on this machine, with the demo model"),
    "pull": Command("machine.pull", "fetch a model by its name"),
    "models": Command("machine.models", "list the models that are here, and whether they can be served"),
    "ps": Command("machine.ps", "list the rings that run on this machine"),
    "logs": Command("machine.logs", "show what the services of a ring log"),
    "serve": Command("machine.serve", "run one service in the foreground: scheduler, worker or frontend"),
    "generate": Command("service.generate", "continue a prompt and stream the text"),
    "chat": Command("service.chat", "talk with the model"),
    "batch": Command("service.batch", "have a file of requests answered, behind everybody else's"),
    "status": Command("service.status", "show queue, workers and cache, or why a request waits"),
    "top": Command("service.top", "watch queue, requests and KV blocks, live in the terminal"),
    "drain": Command("service.drain", "let a worker, or everything, end its requests and take no new ones"),
    "role": Command("service.role", "say what a worker is there for: prompts, decoding or both"),
    "move": Command("service.move", "have another worker go on with a request, where it stands"),
    "safe-mode": Command("service.safe_mode", "have lower classes wait while the higher ones are in trouble"),
    "reload-tenants": Command("service.reload_tenants", "have the scheduler read its file of tenants again"),
    "key": Command("machine.key", "make an API key for a frontend"),
    "certs": Command("machine.certs", "make the certificates with which a ring's services know each other"),
    "completion": Command("machine.completion", "print a script with which bash or zsh completes commands"),
    "bench": Command("bench", "measure: a server under load, this machine, the scheduler"),
}
"""The commands by name."""

EXAMPLE = """\
example:
  signalbox up                                   # in one terminal
  signalbox generate "def quicksort("            # in another
"""
INTERRUPTED = 130
"""Exit status that shells give to Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status; what goes wrong becomes one sentence on stderr."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    streams.open_missing()
    streams.show_any_text()
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()
    except SignalboxError as error:
        print(f"signalbox: {error.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); a second failure at exit has to stay silent.
        streams.silence_stdout()
        return 1
    except OSError as error:
        print(f"signalbox: {_sentence(error)}", file=sys.stderr)
        streams.silence_stdout()
        return 1


def _run(arguments: Sequence[str]) -> int:
    refuse_command(arguments)
    parser, commands = make_parsers(arguments)
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        refuse_unknown(commands[args.command], unknown[0])
    take_identity(args)
    return int(args.run(args))


def _sentence(error: OSError) -> str:
    """What the system refuses, and where."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return "the working directory has been removed; change to one that is there"
    where = f"{error.filename}: " if error.filename else ""
    hint = "; make room, or set TMPDIR to another disk" if error.errno in {ENOSPC, EDQUOT} else ""
    return f"{where}{error.strerror or error}{hint}"


def make_parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """A parser that knows all commands by name, and the options of the one that `arguments` name."""
    return make_parsers(arguments)[0]


def refuse_unknown(command: argparse.ArgumentParser, argument: str) -> NoReturn:
    """Raises StartupError for a removed flag; else exits with a usage error of the command, which names a similar
    one."""
    flag = argument.partition("=")[0]
    if (sentence := refusal(f"{command.prog} {flag}")) is not None:
        raise StartupError(sentence)
    known = [option for action in command._actions for option in action.option_strings]
    near = difflib.get_close_matches(flag, known, 1)
    meant = f"; did you mean {near[0]}?" if near else ""
    command.error(f"unknown argument {flag}{meant} (see {command.prog} --help)")


def make_complete_parser() -> argparse.ArgumentParser:
    """A parser that knows the options of all commands: it imports them all."""
    return make_parsers((), is_complete=True)[0]


def make_parsers(
    arguments: Sequence[str], *, is_complete: bool = False
) -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """The parser of the command line, and those of the commands by name."""
    parser = argparse.ArgumentParser(
        prog="signalbox",
        description="An open serving system for large language models.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"signalbox {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, (path, summary) in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if is_complete or name == chosen:
            module = import_module(f"signalbox.cli.commands.{path}")
            command.epilog = module.EXAMPLE
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser, commands.choices


if __name__ == "__main__":
    raise SystemExit(main())
