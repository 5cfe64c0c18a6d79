"""Models of the Hugging Face hub: fetched into the cache that all programs share, and found there."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import ENOSPC
from pathlib import Path
from typing import Any

from signalbox.cli.models.cache import megabytes
from signalbox.cli.models.progress import Progress
from signalbox.errors import StartupError
from signalbox.runtime.start import user_dirs

ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?")
WANTED = (
    *("config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "tokenizer.model", "tekken.json"),
    *("chat_template.jinja", "chat_template.json", "additional_chat_templates/*.jinja"),
    *("modules.json", "1_Pooling/config.json", "1_LogitScore/config.json"),
    *("config_sentence_transformers.json", "hf_quant_config.json"),
)
"""Files that worker and frontend read; no pickles, pictures or weights for other programs."""
UNWANTED = ("*/*.safetensors", "consolidated*")
CACHE_VARIABLES = {"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"}
"""Each says where the hub's cache is; without any of them it is in the home directory."""
INDEX = "model.safetensors.index.json"
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class HubModel:
    """A repository of the hub, and one of its revisions."""

    repository: str
    revision: str = "main"
    """A branch, a tag or a commit."""

    def __str__(self) -> str:
        return self.repository if self.revision == "main" else f"{self.repository}@{self.revision}"


def read_id(text: str) -> HubModel | None:
    """`Qwen/Qwen3-0.6B`, or with a revision `Qwen/Qwen3-0.6B@v1`; None for what is no such name."""
    if not ID.fullmatch(text) or ".." in text:
        return None
    repository, _, revision = text.partition("@")
    return HubModel(repository, revision or "main")


def find(model: HubModel) -> Path | None:
    """The directory of the model in the cache; None when it is not there, or not whole."""
    hub = _library()
    try:
        directory = Path(hub.snapshot_download(**_request(model), local_files_only=True))
    except hub.errors.LocalEntryNotFoundError:
        return None
    return directory if _is_whole(directory) else None


def _is_whole(directory: Path) -> bool:
    """Whether config and weights are there. Another program may have fetched a part of the model, and the library knows
    what is missing only where it has kept a list of all files."""
    try:
        index = json.loads((directory / INDEX).read_text()) if (directory / INDEX).exists() else {}
        shards = {str(name) for name in index.get("weight_map", {}).values()}
    except (OSError, ValueError, AttributeError, RecursionError):
        return False
    has_weights = all((directory / name).is_file() for name in shards) and any(
        path.is_file() for path in directory.glob("*.safetensors")
    )
    return has_weights and (directory / "config.json").is_file()


def pull(model: HubModel, progress: Progress) -> Path:
    """The model's directory in the cache, with what the hub has now; what is there already is not fetched again, and
    files that were broken off go on.

    Raises StartupError with what is in the way. Without a network, a model that is in the cache is taken as it is.
    """
    hub = _library()
    with _explained(model, hub):
        plan = _plan(model, hub)
        if plan is None:
            return _offline(model, hub)
        missing = [file for file in plan if file.will_download]
        if missing:
            _check_space(missing, hub)
            num_bytes = sum(file.file_size for file in missing)
            progress.step(f"fetching {model} from {hub.constants.ENDPOINT} ({megabytes(num_bytes)} MB)")
            progress.end()
        with _bars(hub, shown=bool(missing) and sys.stderr.isatty()):
            directory = Path(hub.snapshot_download(**_request(model)))
    for file in missing:
        _verify(directory / file.filename, model)
    return directory


def _library() -> Any:
    """huggingface_hub, which is imported only by who names a model of it: that takes a second."""
    try:
        import huggingface_hub.constants  # noqa: PLC0415
        import huggingface_hub.errors  # noqa: PLC0415
        import huggingface_hub.utils  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "huggingface_hub":
            raise
        raise StartupError(
            "models of the Hugging Face hub need huggingface_hub: pip install 'signalbox[models]'"
        ) from None
    if not (user_dirs.has_home() or CACHE_VARIABLES & os.environ.keys()):
        raise StartupError("this user has no home directory: set HOME or HF_HOME to an absolute path")
    return huggingface_hub


def _request(model: HubModel) -> dict[str, Any]:
    return {
        "repo_id": model.repository,
        "revision": model.revision,
        "allow_patterns": list(WANTED),
        "ignore_patterns": list(UNWANTED),
    }


def _plan(model: HubModel, hub: Any) -> list[Any] | None:
    """What there is to fetch; None when the hub cannot be asked. Raises StartupError for what is no model of ours."""
    try:
        with _bars(hub, shown=False):
            plan: list[Any] = hub.snapshot_download(**_request(model), dry_run=True)
    except hub.errors.DryRunError as error:
        cause = error.__cause__
        if isinstance(cause, hub.errors.HfHubHTTPError):
            raise cause from None
        return None
    names = {file.filename for file in plan}
    if odd := next((name for name in names if _leads_out(name)), None):
        raise StartupError(f"{model} has a file {odd!r}, whose name leads out of its directory")
    if "config.json" not in names:
        raise StartupError(f"{model} is no model that could be served: it has no config.json")
    if not any(name.endswith(".safetensors") for name in names):
        raise StartupError(f"{model} has no weights in safetensors; others are not served")
    return plan


def _leads_out(name: str) -> bool:
    return ".." in re.split(r"[/\\]", name) or name.startswith("/") or "\0" in name


def _offline(model: HubModel, hub: Any) -> Path:
    directory = find(model)
    if directory is not None:
        return directory
    if hub.constants.is_offline_mode():
        raise StartupError(f"{model} is not in the cache, and HF_HUB_OFFLINE forbids to fetch it")
    raise StartupError(f"{hub.constants.ENDPOINT} is out of reach, and {model} is not in the cache")


@contextmanager
def _explained(model: HubModel, hub: Any) -> Iterator[None]:
    """Turns what the library raises into one sentence."""
    at, errors = hub.constants.ENDPOINT, hub.errors
    token = "" if os.environ.get("HF_TOKEN") else " and set HF_TOKEN"
    try:
        yield
    except errors.GatedRepoError:
        sentence = f"{model} is gated: ask for access at {at}/{model.repository}{token}"
    except errors.RepositoryNotFoundError:
        sentence = f"{at} has no model {model.repository}, or it is private{token and ': set HF_TOKEN'}"
    except errors.RevisionNotFoundError:
        sentence = f"{model.repository} has no revision {model.revision}"
    except errors.HFValidationError as error:
        sentence = str(error)
    except errors.HfHubHTTPError as error:
        sentence = f"{at} refuses {model}: {error.response.status_code} {error.response.reason_phrase}"
    except ValueError as error:  # such as a name of a file that leads out of the cache
        sentence = f"{model} cannot be fetched: {error}"
    except OSError as error:
        if error.errno == ENOSPC:
            sentence = f"no space is left for {model} in {hub.constants.HF_HUB_CACHE}"
        else:
            sentence = f"{model} cannot be fetched: {str(error).strip().partition(chr(10))[0]}"
    else:
        return
    raise StartupError(sentence) from None


@contextmanager
def _bars(hub: Any, *, shown: bool) -> Iterator[None]:
    """Has the library draw its progress bars, or not, while the block runs."""
    if shown or hub.utils.are_progress_bars_disabled():
        yield
        return
    hub.utils.disable_progress_bars()
    try:
        yield
    finally:
        hub.utils.enable_progress_bars()


def _check_space(missing: list[Any], hub: Any) -> None:
    cache = Path(hub.constants.HF_HUB_CACHE)
    cache.mkdir(parents=True, exist_ok=True)
    free, needed = shutil.disk_usage(cache).free, sum(file.file_size for file in missing)
    if free < needed:
        raise StartupError(
            f"{cache} has {megabytes(free)} MB free, and {megabytes(needed)} MB are needed; make room, or set "
            "HF_HOME to another disk"
        )


def _verify(path: Path, model: HubModel) -> None:
    """Compares a file that has come with the hash that the hub gives for it, which is its name in the cache: sha256 of
    large ones, git's of others. Raises StartupError, and takes the file away, when they differ."""
    blob = path.resolve()
    digest = hashlib.sha256() if len(blob.name) == 64 else hashlib.sha1(usedforsecurity=False)
    if len(blob.name) != 2 * digest.digest_size:
        return  # a server that gives no hash
    if digest.digest_size == 20:
        digest.update(b"blob %d\0" % blob.stat().st_size)
    with blob.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    if digest.hexdigest() != blob.name:
        blob.unlink()
        path.unlink(missing_ok=True)
        raise StartupError(
            f"{path.name} of {model} came with other content than its hash says; pull it again"
        )
