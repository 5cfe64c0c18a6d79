"""Bills of materials say of each image what its lock says: every package, its version and its hashes.

Skipped without cyclonedx-py, which has an environment of its own: `make sbom` makes it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tools.lock import ROOT, Lock
from tools.sbom import IMAGES, write_sbom

TOOLS = ROOT / ".venv-release" / "bin"
PIN = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)(?: *;.*?)?(?: \\)?$", re.MULTILINE)
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@pytest.fixture(autouse=True)
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{TOOLS}{os.pathsep}{os.environ['PATH']}")
    if shutil.which("cyclonedx-py") is None:
        pytest.skip("cyclonedx-py is not installed; `make sbom` installs it")


def locked(lock: Lock) -> dict[str, tuple[str, set[str]]]:
    """Version and hashes by name."""
    text = lock.path.read_text()
    pins = list(PIN.finditer(text))
    ends = [*(pin.start() for pin in pins[1:]), len(text)]
    return {
        pin[1].lower(): (pin[2], set(HASH.findall(text, pin.end(), end)))
        for pin, end in zip(pins, ends, strict=True)
    }


def told(bill: dict[str, Any]) -> dict[str, tuple[str, set[str]]]:
    return {
        part["name"].lower(): (
            part["version"],
            {
                each["content"]
                for reference in part.get("externalReferences", [])
                for each in reference.get("hashes", [])
                if each["alg"] == "SHA-256"
            },
        )
        for part in bill["components"]
    }


@pytest.mark.parametrize(
    "lock",
    [
        pytest.param(lock, id=lock.name, marks=[pytest.mark.slow] if lock is not IMAGES[0] else [])
        for lock in IMAGES
    ],
)
def test_a_bill_has_all_that_is_locked_and_nothing_else(lock: Lock, tmp_path: Path) -> None:
    write_sbom(lock, tmp_path / "bill.json")
    bill = json.loads((tmp_path / "bill.json").read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "signalbox")
    assert told(bill) == locked(lock)
    assert len(locked(lock)) > 5 and all(hashes for _, hashes in locked(lock).values())


def test_a_bill_that_is_made_again_is_the_same(tmp_path: Path) -> None:
    bills = [tmp_path / name for name in ("bill.json", "again.json")]
    for path in bills:
        write_sbom(IMAGES[0], path)
    assert bills[0].read_bytes() == bills[1].read_bytes()
