"""The key file: what is in it, and what is wrong with it."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from frontend_svc.access.keys import Key, read_keys
from signalbox.api_keys import hash_key, id_of, make_key
from signalbox.cli.main import main
from signalbox.errors import StartupError

HASH = hash_key("x")


def read(tmp_path: Path, text: str) -> dict[str, Key]:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    return read_keys(path)


def test_keys_are_all_different_and_name_themselves() -> None:
    keys = [make_key() for _ in range(50)]
    assert len({key.text for key in keys}) == len({key.hash for key in keys}) == 50
    assert all(id_of(key.text) == key.key_id for key in keys)
    assert not any(key.text in repr(key) for key in keys)


def test_the_command_prints_a_line_for_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    limits = ["--requests-at-once=2", "--requests-per-minute=3", "--tokens-per-minute=4"]
    assert main(["key", "new", "--tenant", "acme", "--best-priority=-5", "--admin", *limits]) == 0
    lines = capsys.readouterr().out.splitlines()
    text, line = lines[1].strip(), lines[4].strip()
    assert read(tmp_path, line) == {
        id_of(text): Key(
            hash=hash_key(text),
            tenant="acme",
            best_priority=-5,
            requests_at_once=2,
            requests_per_minute=3,
            tokens_per_minute=4,
            admin=True,
        )
    }
    assert text not in line


def test_the_command_knows_expiry_and_scope(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    scope = ["--model", "a", "--model", 'b"', "--path", "/v1/chat"]
    assert main(["key", "new", "--tenant", "acme", "--days", "2", *scope]) == 0
    (key,) = read(tmp_path, capsys.readouterr().out.splitlines()[4].strip()).values()
    assert (key.models, key.paths) == (["a", 'b"'], ["/v1/chat"])
    now = datetime.now(UTC)
    assert [key.has_expired(now + timedelta(days=days)) for days in (0, 1, 3)] == [False, False, True]


def test_only_what_was_asked_for_is_in_the_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["key", "new", "--tenant", "acme"]) == 0
    ((_, key),) = read(tmp_path, capsys.readouterr().out.splitlines()[4]).items()
    assert key == Key(hash=key.hash, tenant="acme")


@pytest.mark.parametrize("tenant", ["", "a b", '"', "a" * 65, "-a"])
def test_names_of_tenants_need_no_quoting(tenant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["key", "new", f"--tenant={tenant}"])
    assert "tenant" in capsys.readouterr().err


SECRET = make_key().text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f'"00000000" = {{ hash = "{SECRET}", tenant = "t" }}', "00000000.hash: String should match"),
        (f'"00000000" = {{ hash = "{HASH}" }}', "00000000.tenant: Field required"),
        (f'"00000000" = {{ hash = "{HASH}", tenant = "t", weight = 3 }}', "weight: is no field of a key"),
        (f'"00000000" = {{ hash = "{HASH}", tenant = "t", requests_at_once = 0 }}', "requests_at_once: "),
        (f'"00000000" = {{ hash = "{HASH}", tenant = "t", admin = "yes" }}', "admin: "),
        (f'"00000000" = {{ hash = "{HASH}", tenant = "t\\n" }}', "tenant: "),
        (f'{SECRET} = {{ hash = "{HASH}", tenant = "t" }}', "the name of entry 1 is no key id"),
        ('"00000000" = 7', "00000000: Input should be"),
        (f'"00000000" = {SECRET}', "is not TOML (at line 1, column 14)"),
        (f'"00000000" = {{ hash = "{HASH}", tenant = "t" }}\n' * 2, "is not TOML (at line 2, "),
    ],
    ids=itertools.count(),  # the texts have keys that differ between processes
)
def test_mistakes_are_named_and_nothing_is_shown(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(StartupError) as caught:
        read(tmp_path, text)
    assert words in caught.value.message
    assert SECRET not in caught.value.message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="No such file"):
        read_keys(tmp_path / "none.toml")
    (tmp_path / "keys.toml").write_bytes(b"\xff")
    with pytest.raises(StartupError, match="not UTF-8"):
        read_keys(tmp_path / "keys.toml")
