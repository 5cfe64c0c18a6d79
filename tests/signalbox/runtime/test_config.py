"""Settings: flags over variables over defaults, and nothing that vanishes."""

from __future__ import annotations

import pytest
from pydantic import Field
from pydantic_settings import SettingsConfigDict

from signalbox.errors import StartupError
from signalbox.runtime import config


class Sample(config.Settings):
    """A service for tests."""

    model_config = SettingsConfigDict(env_prefix="SIGNALBOX_SAMPLE_")

    num_blocks: int = Field(8, ge=1)
    """Blocks of the cache."""
    compile: bool = False
    """Compile the model."""


def test_a_flag_beats_a_variable_beats_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.load(Sample, []).num_blocks == 8
    monkeypatch.setenv("SIGNALBOX_SAMPLE_NUM_BLOCKS", "16")
    assert config.load(Sample, []).num_blocks == 16
    assert config.load(Sample, ["--num-blocks", "32"]).num_blocks == 32


def test_the_last_of_two_flags_counts() -> None:
    """`signalbox up --worker-set` relies on it."""
    assert config.load(Sample, ["--num-blocks=2", "--num-blocks=3"]).num_blocks == 3


def test_switches_have_two_forms() -> None:
    assert config.load(Sample, ["--compile"]).compile
    assert not config.load(Sample, ["--no-compile"]).compile


def test_an_unknown_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNALBOX_SAMPLE_NUM_BLOKCS", "16")
    with pytest.raises(StartupError, match=r"SIGNALBOX_SAMPLE_NUM_BLOKCS.*SIGNALBOX_SAMPLE_NUM_BLOCKS"):
        config.load(Sample, [])


def test_variables_of_other_services_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNALBOX_OTHER_NUM_BLOCKS", "16")
    assert config.load(Sample, []).num_blocks == 8


@pytest.mark.parametrize("flag", ["--num-blokcs=1", "--num-block=1", "--num_blocks=1"])
def test_an_unknown_flag_exits_with_2(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        config.load(Sample, [flag])
    assert exit_info.value.code == 2
    assert flag in capsys.readouterr().err


@pytest.mark.parametrize("value", ["many", "0"])
def test_a_bad_value_names_the_flag_and_the_variable(value: str) -> None:
    with pytest.raises(StartupError) as error:
        config.load(Sample, [f"--num-blocks={value}"])
    assert "--num-blocks (or SIGNALBOX_SAMPLE_NUM_BLOCKS)" in error.value.message
    assert f"got '{value}'" in error.value.message


def test_help_shows_the_docstrings(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        config.load(Sample, ["--help"])
    assert exit_info.value.code == 0
    assert "Blocks of the cache." in capsys.readouterr().out


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        config.load(Sample, []).num_blocks = 3
