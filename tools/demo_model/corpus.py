"""What the model learns from: the sources of the standard library."""

from __future__ import annotations

import ast
import hashlib
import sysconfig
import tokenize
from dataclasses import dataclass
from pathlib import Path

EXCLUDED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "idle_test"}
# Code-page tables and the text of the manual: two megabytes that teach no Python.
EXCLUDED_PACKAGES = {"encodings", "pydoc_data"}
HOLD_OUT_EVERY = 100


@dataclass(frozen=True)
class Corpus:
    train: list[str]
    held_out: list[str]
    files: int
    bytes: int

    @property
    def digest(self) -> str:
        return hashlib.sha256("\0".join([*self.train, "\0", *self.held_out]).encode()).hexdigest()


def list_sources(root: Path) -> list[Path]:
    """Source files of the standard library in sorted order, without tests and tables."""

    def wanted(relative: Path) -> bool:
        return not EXCLUDED_FOLDERS & set(relative.parts) and relative.parts[0] not in EXCLUDED_PACKAGES

    return sorted(path for path in root.rglob("*.py") if wanted(path.relative_to(root)))


def read_source(path: Path) -> str:
    with tokenize.open(path) as file:  # honours a coding cookie
        return file.read()


def cut_functions(source: str) -> list[str]:
    """Module-level functions of a file, each to become a document of its own."""
    found = (ast.get_source_segment(source, node) for node in ast.parse(source).body if is_function(node))
    return [text + "\n" for text in found if text]


def is_function(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def load_corpus() -> Corpus:
    """Whole files, and their functions once more: these teach that a text may end where a function ends."""
    texts = [read_source(path) for path in list_sources(Path(sysconfig.get_paths()["stdlib"]))]
    held_out = texts[HOLD_OUT_EVERY // 2 :: HOLD_OUT_EVERY]
    files = [text for i, text in enumerate(texts) if i % HOLD_OUT_EVERY != HOLD_OUT_EVERY // 2]
    functions = [function for text in files for function in cut_functions(text)]
    return Corpus(files + functions, held_out, len(texts), sum(len(text.encode()) for text in texts))
