"""`signalbox certs`: makes a private authority and the certificates of a ring's services."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

from signalbox.errors import StartupError
from signalbox.links.tls.roles import Role

EXAMPLE = """\
examples:
  signalbox certs ./certs                        # ca, frontend, scheduler, worker, relay, operator
  signalbox certs ./certs --role worker --days 7 --as worker-3   # one more, by the same authority
  signalbox up --tls ./certs
  scheduler-svc --tls-cert certs/scheduler.crt --tls-key certs/scheduler.key --tls-ca certs/ca.crt

Whoever has ca.key can make certificates of any role: keep it where no service runs. Files that are there
are never overwritten; to replace a certificate, make it under another name and move both files into place.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command understands."""
    add = parser.add_argument
    add("directory", type=Path, help="where the files go; an authority that is there is used")
    add("--role", choices=[role.value for role in Role], action="append", help="which certificates (all)")
    add("--days", type=float, default=365, help="for how long they are valid (365)")
    add("--as", dest="name", metavar="NAME", help="name of the files of the one role (the role)")
    add(
        "--instance",
        default="",
        metavar="ID",
        help="the only process that they are for: a worker by its id (any)",
    )
    add("--host", action="append", default=[], help="a name or address of the server, put into them as well")


def run(args: argparse.Namespace) -> int:
    """Writes the files, and says which."""
    roles = [Role(role) for role in args.role or [role.value for role in Role]]
    if args.name and len(roles) != 1:
        raise StartupError("--as names the files of one role; say which with --role")
    if args.days <= 0:
        raise StartupError(f"--days {args.days:g}: a certificate is valid for some time")
    try:
        from signalbox.links.tls import authority as made  # noqa: PLC0415  (only this command needs it)
    except ImportError:
        raise StartupError("the package cryptography is missing: pip install 'signalbox[certs]'") from None
    now = datetime.now(UTC)
    args.directory.mkdir(parents=True, exist_ok=True)
    if (args.directory / made.CA_CERT).exists() or (args.directory / made.CA_KEY).exists():
        authority = made.read_authority(args.directory)
    else:
        authority = made.make_authority(now)
        made.write_issued(args.directory, "ca", authority)
        print(f"{args.directory / made.CA_CERT}: the authority; its key makes certificates of any role")
    for role in roles:
        leaf = made.make_leaf(authority, role, now, days=args.days, hosts=args.host, instance=args.instance)
        made.write_issued(args.directory, args.name or role.value, leaf)
        until = leaf.cert.not_valid_after_utc.strftime("%Y-%m-%d")
        print(f"{args.directory / (args.name or role.value)}.crt and .key: {role.value}, until {until}")
    return 0
