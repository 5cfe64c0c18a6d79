"""Settings of drafts: which drafter they make, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from signalbox.errors import StartupError
from signalbox.runtime.config import load
from worker_svc.config import WorkerSettings
from worker_svc.core.drafts.ngram import NgramDrafter
from worker_svc.runner.draft_model import DraftModel
from worker_svc.runner.torch_runner import TorchRunner
from worker_svc.runner_factory import make_runner

SMALL = ("--dtype=float32", "--num-blocks=32", "--block-size=4", "--threads=1")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--speculative=lookahead"], "lookahead"),
        (["--speculative=ngram:40"], "ngram:40"),
        (["--runner=sim", "--speculative=ngram"], "sim-max-draft-tokens"),
        (["--draft-model=/somewhere"], "--speculative draft"),
        (["--speculative=ngram", "--draft-model=/somewhere"], "--speculative draft"),
        (["--ngram-min=6"], "--ngram-max 5"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(flags: list[str], message: str) -> None:
    with pytest.raises(StartupError, match=message):
        load(WorkerSettings, flags)


def test_each_method_makes_its_drafter(target_dir: Path, other_dir: Path) -> None:
    runner, drafter = make_runner(load(WorkerSettings, [f"--model={target_dir}", *SMALL]))
    assert drafter is None
    assert runner.info.max_draft_tokens == 0
    flags = [f"--model={target_dir}", *SMALL, "--speculative=ngram:7"]
    runner, drafter = make_runner(load(WorkerSettings, flags))
    assert isinstance(drafter, NgramDrafter)
    assert runner.info.max_draft_tokens == 7
    flags = [*flags[:-1], "--speculative=draft", f"--draft-model={other_dir}"]
    runner, drafter = make_runner(load(WorkerSettings, flags))
    assert isinstance(drafter, DraftModel)
    assert runner.info.max_draft_tokens == 4


def test_a_draft_model_is_looked_for_beside_the_model(
    target_dir: Path, other_dir: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(target_dir, tmp_path / "model")
    flags = [f"--model={model}", *SMALL, "--speculative=draft"]
    with pytest.raises(StartupError, match="draft"):
        make_runner(load(WorkerSettings, flags))
    shutil.copytree(other_dir, model / "draft")
    assert isinstance(make_runner(load(WorkerSettings, flags))[1], DraftModel)


def test_a_draft_model_with_another_tokenizer_is_refused(
    target_dir: Path, other_dir: Path, tmp_path: Path
) -> None:
    draft = shutil.copytree(other_dir, tmp_path / "draft")
    (draft / "tokenizer.json").write_text("{}")
    flags = [f"--model={target_dir}", *SMALL, "--speculative=draft", f"--draft-model={draft}"]
    with pytest.raises(StartupError, match="another tokenizer"):
        make_runner(load(WorkerSettings, flags))


def test_the_draft_s_layers_are_part_of_what_a_block_takes(target_dir: Path) -> None:
    """The same memory holds half as many blocks when the draft model is as large as the model."""
    flags = [f"--model={target_dir}", "--dtype=float32", "--block-size=4", "--kv-cache-memory=1MiB"]
    alone, _ = make_runner(load(WorkerSettings, flags))
    flags += ["--speculative=draft", f"--draft-model={target_dir}"]
    both, drafter = make_runner(load(WorkerSettings, flags))
    assert isinstance(drafter, DraftModel)
    assert isinstance(both, TorchRunner)
    assert both.info.num_blocks == alone.info.num_blocks // 2
    assert drafter.cache.num_blocks == both.num_cache_blocks
