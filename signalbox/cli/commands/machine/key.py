"""`signalbox key`: makes an API key, and the line of it for a frontend's key file."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime, timedelta

from signalbox.api_keys import ENVIRONMENT, TENANT_PATTERN, NewKey, make_key
from signalbox.cli.commands.arguments import at_least_one

EXAMPLE = f"""\
examples:
  signalbox key new --tenant acme
  signalbox key new --tenant batch --best-priority 10 --requests-at-once 8 --tokens-per-minute 60000
  signalbox key new --tenant guest --days 30 --model qwen3 --path /v1/chat/completions
  signalbox key new --tenant operators --admin

The key is shown once: it goes to its owner, who sends `Authorization: Bearer KEY` or sets {ENVIRONMENT}.
The line goes into the file that frontends are given with --key-file; it holds a hash, from which nobody
gets the key back. Frontends read the file again when it changes; a line that is gone revokes its key.
"""
LIMITS = ("requests_at_once", "requests_per_minute", "tokens_per_minute")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    add = parser.add_argument
    add("action", choices=["new"], help="make a key")
    add(
        "--tenant", type=tenant, required=True, help="whose requests they are; tenants share no cached blocks"
    )
    add("--best-priority", type=int, metavar="N", help="lowest priority number allowed; lower runs first (0)")
    add("--requests-at-once", type=at_least_one, metavar="N", help="most open requests (no limit)")
    add("--requests-per-minute", type=at_least_one, metavar="N", help="most new requests (no limit)")
    add("--tokens-per-minute", type=at_least_one, metavar="N", help="most prompt + output tokens (no limit)")
    add("--days", type=at_least_one, metavar="N", help="how long the key is good for (for ever)")
    add("--model", action="append", metavar="NAME", help="a model that it is for; several times (all)")
    add("--path", action="append", metavar="PATH", help="what paths of its calls begin with (all)")
    add("--no-free-grammars", action="store_true", help="no regular expressions and grammars of its own")
    add("--admin", action="store_true", help="may also see the board and cancel requests of other tenants")


def run(args: argparse.Namespace) -> int:
    """Prints the key and its line; writes nothing."""
    key = make_key()
    print(f"key, shown once:\n  {key.text}\n\nline for the key file:\n  {make_line(key, args)}")
    return 0


def make_line(key: NewKey, args: argparse.Namespace) -> str:
    """The entry of `key`, as TOML on one line."""
    entry = [f'hash = "{key.hash}"', f'tenant = "{args.tenant}"']
    for name in ("best_priority", *LIMITS):
        if getattr(args, name) is not None:
            entry.append(f"{name} = {getattr(args, name)}")
    if args.days is not None:
        expires = datetime.now(UTC).replace(microsecond=0) + timedelta(days=args.days)
        entry.append(f"expires = {expires.isoformat()}")
    for name, values in (("models", args.model), ("paths", args.path)):
        if values is not None:
            entry.append(f"{name} = {json.dumps(values)}")  # as TOML has it, too
    if args.no_free_grammars:
        entry.append("free_grammars = false")
    if args.admin:
        entry.append("admin = true")
    return f'"{key.key_id}" = {{ {", ".join(entry)} }}'


def tenant(text: str) -> str:
    """The type of an argument that is a tenant's name."""
    if not TENANT_PATTERN.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not 1 to 64 letters, digits, dots, dashes, underscores"
        )
    return text
