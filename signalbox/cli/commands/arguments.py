"""Kinds of argument that several commands take."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from signalbox.cli.identity import add_tls
from signalbox.errors import StartupError
from signalbox.links.addresses import read_addresses
from signalbox.links.tls.client_files import (
    CA_VARIABLE,
    CERT_VARIABLE,
    KEY_VARIABLE,
    ClientFiles,
    refuse_for_plaintext,
)
from signalbox.links.tls.schemes import PLAIN, SECURE
from signalbox.protocol.number_types import FLOAT16, NO_FLOAT16, NumberType

if TYPE_CHECKING:
    from signalbox.cli.http_client import HttpClient

MAX_PRIORITY = 1000
NUMBER_TYPES = get_args(NumberType)


def address(text: str) -> str:
    """The type of an argument `host:port`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8000")
    return text


def face(text: str) -> str:
    """The gRPC face of a frontend: `host:port`, or `grpcs://host:port` for one by TLS."""
    scheme = next((each for each in (SECURE, PLAIN) if text.startswith(each)), "")
    return scheme + address(text.removeprefix(scheme))


def number_type(text: str) -> str:
    """The type of --dtype: float16 is refused with the worker's own words."""
    if text in FLOAT16:
        raise argparse.ArgumentTypeError(NO_FLOAT16)
    return text


def addresses(text: str) -> str:
    """`host:port`, or several of them joined by commas."""
    try:
        return ",".join(read_addresses(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_scheduler(parser: argparse.ArgumentParser) -> None:
    """The flag that says where the scheduler is."""
    parser.add_argument(
        "--scheduler",
        type=addresses,
        default="127.0.0.1:7300",
        metavar="HOST:PORT[,...]",
        help="gRPC of the scheduler, or of all of which one leads (%(default)s)",
    )
    add_tls(parser)


def add_client_files(parser: argparse.ArgumentParser) -> None:
    """The flags that say what is believed of, and shown to, a face by TLS."""
    for flag, variable, what in (
        ("--ca", CA_VARIABLE, "authority of the frontend that is believed"),
        ("--cert", CERT_VARIABLE, "certificate for a frontend that asks for one"),
        ("--key", KEY_VARIABLE, "its private key"),
    ):
        parser.add_argument(flag, type=Path, metavar="FILE", help=f"{what}, PEM ({variable})")


def client_files(args: argparse.Namespace, address: str) -> ClientFiles:
    """A client's files: those of the flags, and of the variables where there are none. Raises StartupError, also for
    flags with an `address` in plaintext."""
    if not address.startswith((SECURE, "https://")):
        refuse_for_plaintext(address, args.ca, args.cert, args.key)
    return ClientFiles.chosen(args.ca, args.cert, args.key)


def http_client(args: argparse.Namespace) -> HttpClient:
    """A client of the frontend at `--url`. Raises StartupError, also when httpx is not installed."""
    files = client_files(args, args.url)
    try:
        from signalbox.cli.http_client import HttpClient  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "httpx":
            raise
        raise StartupError(
            f"signalbox {args.command} needs httpx: pip install 'signalbox[terminal]'"
        ) from None
    return HttpClient(args.url, files=files)


def at_least_one(text: str) -> int:
    """A whole number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def priority(text: str) -> int:
    """A class of requests, -1000 to 1000."""
    try:
        number = int(text)
    except ValueError:
        number = MAX_PRIORITY + 1
    if not -MAX_PRIORITY <= number <= MAX_PRIORITY:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a whole number from {-MAX_PRIORITY} to {MAX_PRIORITY}"
        )
    return number


def above_zero(text: str) -> float:
    """A finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number
