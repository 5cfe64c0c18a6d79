"""Who runs ahead: what is asked for is done or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from signalbox.errors import StartupError
from signalbox.runtime.config import load
from tools.make_random_model import make_model
from worker_svc.config import WorkerSettings
from worker_svc.runner.threaded_runner import ThreadedRunner
from worker_svc.runner_factory import make_runner

WAIT_S = 100
SMALL = ["--num-blocks=20", "--threads=1", "--dtype=float32", "--num-slots=4"]


def runs_in_a_thread(flags: list[str]) -> bool:
    runner, _ = make_runner(load(WorkerSettings, [*SMALL, *flags]))
    if not isinstance(runner, ThreadedRunner):
        return False
    runner.close(WAIT_S)
    return True


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model("tiny-llama", tmp_path_factory.mktemp("tiny-llama"), seed=1)


@pytest.mark.parametrize(
    ("flags", "expected"), [([], False), (["--run-ahead"], True), (["--no-run-ahead"], False)]
)
def test_a_real_model_on_the_cpu_runs_ahead_if_told(model: Path, flags: list[str], expected: bool) -> None:
    assert runs_in_a_thread([f"--model={model}", *flags]) == expected


@pytest.mark.parametrize(("flags", "expected"), [([], False), (["--run-ahead"], True)])
def test_the_simulated_model_runs_ahead_if_told(flags: list[str], expected: bool) -> None:
    assert runs_in_a_thread(["--runner=sim", *flags]) == expected


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--run-ahead", "--speculative=ngram"], "--run-ahead cannot go with --speculative"),
        (
            ["--run-ahead", "--runner=sim", "--sim-max-draft-tokens=2"],
            "--run-ahead cannot go with --sim-max-draft-tokens",
        ),
        (["--no-run-ahead", "--device=cuda"], "--no-run-ahead is for the CPU"),
    ],
)
def test_what_cannot_be_is_refused(flags: list[str], sentence: str) -> None:
    with pytest.raises(StartupError) as error:
        load(WorkerSettings, flags)
    assert sentence in error.value.message
