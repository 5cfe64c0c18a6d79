"""The models that are on this machine, and what the worker knows of them before it loads them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from signalbox.cli.models.cache import size_of
from signalbox.cli.models.catalogue import CATALOGUE
from signalbox.errors import StartupError
from signalbox.runtime.start.interpreter import module_command

JUDGE = "worker_svc.runner.model.support"
"""A process of its own: the command line imports no service. It loads neither torch nor weights."""


@dataclass(frozen=True)
class KeptModel:
    """One model, or one revision of it, in a cache."""

    name: str
    """What `up --model` takes."""
    directory: Path
    num_bytes: int


@dataclass(frozen=True)
class Support:
    """Whether a model can be served, as its files tell."""

    family: str
    """The model_type of its config.json; empty: unknown."""
    problem: str | None
    """Why it cannot be served; None: nothing is known against it."""
    is_compared: bool
    """Whether the outputs of its family are compared with transformers."""
    scheme: str
    """How its weights are quantised; empty: not at all, or the model cannot be served."""


def list_models() -> list[KeptModel]:
    """The models of the catalogue that were pulled, and those in the cache of the Hugging Face hub."""
    pulled = [
        KeptModel(model.name, model.directory, size_of(model.directory))
        for model in CATALOGUE.values()
        if model.directory.is_dir()
    ]
    return pulled + _hub_models()


def judge(models: Sequence[KeptModel]) -> list[Support]:
    """One answer for each model. Raises StartupError when the worker is not installed."""
    if not models:
        return []
    command = module_command(JUDGE, *(str(model.directory) for model in models))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != len(models):
        said = done.stderr.strip().splitlines()[-1:]
        raise StartupError(f"the worker cannot be asked what it can serve: {''.join(said)}")
    return [Support(**json.loads(line)) for line in lines]


def _hub_models() -> list[KeptModel]:
    if find_spec("huggingface_hub") is None:
        return []
    # Imported here: it takes half a second.
    from huggingface_hub import scan_cache_dir  # noqa: PLC0415
    from huggingface_hub.errors import CacheNotFound  # noqa: PLC0415

    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return []
    found = [
        KeptModel(f"{each.repo_id}{_revision(revision)}", revision.snapshot_path, revision.size_on_disk)
        for each in repositories
        if each.repo_type == "model"
        for revision in each.revisions
    ]
    return sorted(found, key=lambda model: model.name)


def _revision(revision: Any) -> str:
    """What to type behind the repository's name: nothing for main, else a branch, a tag or the commit."""
    if "main" in revision.refs:
        return ""
    return f"@{min(revision.refs, default=revision.commit_hash)}"
