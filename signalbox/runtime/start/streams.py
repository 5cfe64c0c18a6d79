"""The standard streams of a process, as whoever started it has left them."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress


def open_missing() -> None:
    """Opens /dev/null for each of stdin, stdout and stderr that is closed: the next file or socket would take its
    number, and get what libraries print."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != fd:
                os.dup2(opened, fd)
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, "r" if fd == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def show_any_text() -> None:
    """Has characters that the terminal's encoding does not have shown as `?`, instead of an error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        with suppress(OSError):  # what somebody has put in its place may be unable to
            sys.stdout.reconfigure(errors="replace")


def silence_stdout() -> None:
    """Has what is written from now on, also when Python ends, go nowhere: the reader has gone or the disk is full."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
