"""Which certificate the command line shows to the services of a ring: an operator's."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from signalbox.errors import StartupError

VARIABLE = "SIGNALBOX_TLS"
"""Folder of certificates, for those who do not say --tls."""


def add_tls(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """The flag that says where certificates are."""
    parser.add_argument(
        "--tls",
        type=Path,
        default=os.environ.get(VARIABLE) or None,
        metavar="DIR",
        help=f"folder of `signalbox certs`: operator.crt, operator.key, ca.crt ({VARIABLE}; none: plaintext)",
    )


def take_identity(args: argparse.Namespace) -> None:
    """Makes this process the operator of its arguments, if they name one. Raises StartupError."""
    folder = getattr(args, "tls", None)
    if folder is None:
        return
    from signalbox.links.tls.identity import Identity, take_on  # noqa: PLC0415  (grpc takes a while)

    take_on(Identity(*files_of(Path(folder), "operator")))


def files_of(folder: Path, role: str) -> tuple[Path, Path, Path]:
    """Certificate, key and authority of a role. Raises StartupError when one is missing."""
    files = folder / f"{role}.crt", folder / f"{role}.key", folder / "ca.crt"
    for path in files:
        if not path.is_file():
            raise StartupError(
                f"--tls {folder}: there is no {path.name}; `signalbox certs {folder}` makes it"
            )
    return files
