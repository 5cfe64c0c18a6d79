"""Removed settings and commands are errors at start; the text names the replacement."""

from __future__ import annotations

import pytest
from pydantic_settings import SettingsConfigDict

from signalbox.cli.main import main
from signalbox.errors import StartupError
from signalbox.runtime import config, removed
from signalbox.runtime.removed import Removal

SAMPLES = {
    "SIGNALBOX_COLOUR": Removal("0.2", "set SIGNALBOX_LOG_FORMAT"),
    "SIGNALBOX_FRONTEND_COMPILE": Removal("0.2", "nothing replaces it"),
    "SIGNALBOX_WORKER_COMPILE": Removal("0.2", "nothing replaces it"),
    "SIGNALBOX_WORKER_NUM_PAGES": Removal("0.3", "use --num-blocks"),
    "signalbox bench abacus": Removal("0.2", "use signalbox bench load"),
    "signalbox top --colour": Removal("0.2", "nothing replaces it"),
    "signalbox watch": Removal("0.2", "use signalbox top"),
}


class Sample(config.Settings):
    """A service for tests."""

    model_config = SettingsConfigDict(env_prefix="SIGNALBOX_WORKER_")

    num_blocks: int = 8
    """Blocks of the cache."""


@pytest.fixture(autouse=True)
def samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removed, "REMOVED", SAMPLES)


@pytest.mark.parametrize(
    ("argument", "name", "rest"),
    [
        ("--num-pages=3", "--num-pages", "0.3: use --num-blocks"),
        ("--num-pages", "--num-pages", "0.3: use --num-blocks"),
        ("--no-compile", "--no-compile", "0.2: nothing replaces it"),
    ],
)
def test_a_removed_flag_is_refused(argument: str, name: str, rest: str) -> None:
    with pytest.raises(StartupError) as error:
        config.load(Sample, [argument])
    variable = "SIGNALBOX_WORKER_NUM_PAGES" if "pages" in name else "SIGNALBOX_WORKER_COMPILE"
    assert error.value.message == f"{name} (or {variable}) was removed in version {rest}"


@pytest.mark.parametrize("name", ["SIGNALBOX_WORKER_NUM_PAGES", "SIGNALBOX_COLOUR"])
def test_a_removed_variable_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "3")
    with pytest.raises(StartupError, match=f"^{name} was removed in version 0"):
        config.load(Sample, [])


def test_a_removed_variable_of_another_service_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNALBOX_FRONTEND_COMPILE", "1")
    assert config.load(Sample, ["--num-blocks=3"]).num_blocks == 3


def test_a_value_that_reads_like_a_removed_name_does_not_matter() -> None:
    with pytest.raises(SystemExit):  # pydantic's own error of an unknown argument
        config.load(Sample, ["num-pages"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["watch", "--help"], "signalbox watch was removed in version 0.2: use signalbox top"),
        (["bench", "abacus"], "signalbox bench abacus was removed in version 0.2: use signalbox bench load"),
        (["top", "--colour=red"], "signalbox top --colour was removed in version 0.2: nothing replaces it"),
        (
            ["up", "--worker-set", "num-pages=3"],
            "--num-pages (or SIGNALBOX_WORKER_NUM_PAGES) was removed in version 0.3: use --num-blocks",
        ),
    ],
)
def test_the_command_line_prints_the_sentence_alone(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert capsys.readouterr() == ("", f"signalbox: {sentence}\n")


def test_up_refuses_a_removed_variable_of_a_service(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SIGNALBOX_FRONTEND_COMPILE", "1")
    assert main(["up"]) == 1
    assert capsys.readouterr().err.startswith("signalbox: SIGNALBOX_FRONTEND_COMPILE was removed")


def test_a_setting_of_the_same_name_of_another_service_is_left_to_it() -> None:
    removed.refuse_settings("SIGNALBOX_SCHEDULER_", ["--compile", "--num-pages=1"], ())
