"""`signalbox certs`, as openssl and our own links read what it writes."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from signalbox.cli.main import main
from signalbox.links.tls.identity import Identity
from signalbox.links.tls.roles import Role

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")


def openssl(*arguments: object) -> str:
    return subprocess.run(
        ["openssl", *map(str, arguments)], check=True, capture_output=True, text=True
    ).stdout


@needs_openssl
def test_all_roles_are_made_and_openssl_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "certs"
    assert main(["certs", str(folder)]) == 0
    assert "relay.crt and .key: relay, until " in capsys.readouterr().out
    for role in Role:
        cert = folder / f"{role.value}.crt"
        purposes = ("sslserver", "sslclient")
        for purpose in purposes:
            assert "OK" in openssl("verify", "-purpose", purpose, "-CAfile", folder / "ca.crt", cert)
        text = openssl("x509", "-in", cert, "-noout", "-ext", "subjectAltName")
        assert f"URI:spiffe://signalbox/{role.value}" in text and f"DNS:{role.value}.signalbox" in text
        assert stat.S_IMODE((folder / f"{role.value}.key").stat().st_mode) == stat.S_IRUSR | stat.S_IWUSR
        Identity(cert, folder / f"{role.value}.key", folder / "ca.crt")
    assert stat.S_IMODE((folder / "ca.key").stat().st_mode) == stat.S_IRUSR | stat.S_IWUSR


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certs", str(tmp_path), "--role", "worker"]) == 0
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(["certs", str(tmp_path)]) == 1  # frontend and scheduler are made, worker is there
    assert "worker.key: File exists" in capsys.readouterr().err
    assert all(path.read_bytes() == content for path, content in before.items())


@needs_openssl
def test_one_more_by_the_same_authority(tmp_path: Path) -> None:
    assert main(["certs", str(tmp_path), "--role", "operator"]) == 0
    one_more = [
        "--role",
        "worker",
        "--as",
        "w3",
        "--instance",
        "worker-3",
        "--host",
        "10.0.0.7",
        "--days",
        "2",
    ]
    assert main(["certs", str(tmp_path), *one_more]) == 0
    assert "OK" in openssl("verify", "-CAfile", tmp_path / "ca.crt", tmp_path / "w3.crt")
    text = openssl("x509", "-in", tmp_path / "w3.crt", "-noout", "-ext", "subjectAltName")
    assert "URI:spiffe://signalbox/worker/worker-3" in text and "IP Address:10.0.0.7" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--as", "x"], "--as names the files of one role"),
        (["--days", "0"], "--days 0: a certificate is valid for some time"),
    ],
)
def test_slips_are_told(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certs", str(tmp_path), *arguments]) == 1
    assert said in capsys.readouterr().err
    (tmp_path / "ca.crt").write_text("no certificate")
    assert main(["certs", str(tmp_path)]) == 1
    assert "ca.key" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "flags"),
    [
        ("scheduler_svc", ["--listen=0.0.0.0:0"]),
        ("worker_svc.relay", ["--listen=[::]:0"]),
        ("frontend_svc", ["--http=0.0.0.0:0", "--grpc=127.0.0.1:0"]),
    ],
)
def test_plaintext_beyond_this_machine_has_to_be_asked_for(module: str, flags: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", module, *flags], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1
    assert f"{flags[0].partition('=')[2]} can be reached from other machines, in plaintext" in ended.stderr
    assert "or say --insecure" in ended.stderr


@pytest.mark.parametrize("missing", ["cert", "key", "ca"])
def test_files_come_in_threes(missing: str) -> None:
    flags = [f"--tls-{each}=x" for each in ("cert", "key", "ca") if each != missing]
    ended = subprocess.run(
        [sys.executable, "-m", "scheduler_svc", *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1 and f"--tls-{missing} must be given as well" in ended.stderr
