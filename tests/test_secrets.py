"""No file of the project holds a secret."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = {
    "a private key": rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----\s+[A-Za-z0-9+/]{16}",
    "a key of Amazon's": rb"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    "a key of Google's": rb"\bAIza[A-Za-z0-9_-]{35}\b",
    "a token of GitHub's": rb"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{60,})\b",
    "a token of GitLab's": rb"\bglpat-[A-Za-z0-9_-]{20}\b",
    "a token of Hugging Face's": rb"\bhf_[A-Za-z0-9]{34}\b",
    "a token of PyPI's": rb"\bpypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,}",
    "a key of OpenAI's or Anthropic's": rb"\bsk-(?:proj-|ant-)[A-Za-z0-9_-]{32,}",
    "a token of Slack's": rb"\bxox[abprs]-[A-Za-z0-9-]{20,}",
    "a key of a frontend of ours": rb"\bsb_[0-9a-f]{8}_[A-Za-z0-9_-]{43}\b",
    "a password in an address": rb"\b[a-z][a-z0-9+]{2,9}://[^\s/:@\"'{}$<]+:[^\s/@\"'{}$<]{6,}@[a-z0-9]",
}
LARGEST = 4 << 20
"""Weights and figures are not read."""


def secrets_in(content: bytes) -> list[str]:
    """Kinds of secrets that a text seems to hold."""
    return [kind for kind, pattern in KINDS.items() if re.search(pattern, content)]


def test_no_tracked_file_holds_a_secret() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    paths = [ROOT / name for name in listed.decode().split("\0") if name]
    assert len(paths) > 500
    found = {
        str(path.relative_to(ROOT)): kinds
        for path in paths
        if path.is_file() and path.stat().st_size < LARGEST and (kinds := secrets_in(path.read_bytes()))
    }
    assert found == {}


def test_each_kind_is_found() -> None:
    """Put together here, so that this file holds none."""
    examples = [
        "-----BEGIN RSA PRIVATE" + " KEY-----\n" + "M" * 64,
        "AKIA" + "Q" * 16,
        "AIza" + "x" * 35,
        "ghp_" + "x" * 36,
        "glpat-" + "x" * 20,
        "hf_" + "x" * 34,
        "pypi-AgEIcHlwaS5vcmc" + "x" * 60,
        "sk-ant-" + "x" * 40,
        "xoxb-" + "1" * 24,
        "sb_0123abcd_" + "x" * 43,
        "postgres://user:" + "hunter22@db",
    ]
    assert [secrets_in(f"key = {text}\n".encode()) for text in examples] == [[kind] for kind in KINDS]
