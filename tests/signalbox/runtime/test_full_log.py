"""A disk that is full costs lines of the log, and no service its work or its exit status."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SERVICE = """
import logging, sys
from pathlib import Path
from signalbox.runtime import logs

logs.set_up("service", "info")
log, ballast = logging.getLogger("a"), Path(sys.argv[1])
for number in range(2000):
    log.info("line %d %s", number, "x" * 100)
if sys.argv[2] == "room":
    ballast.unlink()
    for number in range(3):
        log.info("again %d", number)
sys.exit(75)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for some lines, the rest being taken."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here")
    (disk / "ballast").write_bytes(bytes(40 << 10))
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.parametrize("then", ["room", "none"])
def test_a_full_disk_costs_lines_alone(small_disk: Path, then: str) -> None:
    """Before, lines were missing and nothing said so, at the cost of a stack for each."""
    log = small_disk / "log"
    with log.open("wb") as output:
        done = subprocess.run(
            [sys.executable, "-c", SERVICE, small_disk / "ballast", then], check=False, stderr=output
        )
    assert done.returncode == 75
    lines = log.read_text().splitlines()
    assert "line 0 " in lines[0]
    assert not any("Logging error" in line or "Traceback" in line for line in lines)
    if then == "room":
        assert all(" service INFO " in line or " service WARNING " in line for line in lines)
        assert sum("again" in line for line in lines) == 3
        (told,) = (line for line in lines if "could not be written" in line)
        assert told.endswith("lines of the log could not be written: No space left on device")
