"""Our own clients where the faces ask for a certificate: a real frontend with --public-tls-ca."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from frontend_svc.config import FrontendSettings
from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.cli.http_client import HttpClient
from signalbox.client import Client
from signalbox.errors import StartupError, UnavailableError
from signalbox.links.tls.client_files import CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE, ClientFiles
from signalbox.links.tls.roles import Role
from tests.frontend_svc.helpers import serve_text, until
from tests.frontend_svc.scripted_cluster import Cluster
from tests.signalbox.links.tls.certificates import Certificates


@dataclass(frozen=True)
class Face:
    """A frontend that asks for certificates of `certificates`."""

    grpc: str
    https: str
    certificates: Certificates

    def files(self, name: str = "client", **how: float) -> ClientFiles:
        cert, key, ca = self.certificates.files(Role.OPERATOR, name, **how)  # type: ignore[arg-type]
        return ClientFiles(ca, cert, key)


@pytest.fixture
async def face(
    cluster: Cluster, model_directory: Path, tokenizer: Tokenizer, tmp_path: Path
) -> AsyncIterator[Face]:
    certificates = Certificates.make(tmp_path / "ours")
    cert, key, ca = certificates.files(Role.FRONTEND)
    settings = FrontendSettings(
        scheduler=f"127.0.0.1:{cluster.scheduler_port}",
        http="127.0.0.1:0",
        grpc="127.0.0.1:0",
        model=model_directory,
        drain_s=0.2,
        public_tls_cert=cert,
        public_tls_key=key,
        public_tls_ca=ca,
    )
    serve_text(cluster, tokenizer, "the fox")
    frontend = Frontend(settings)
    await frontend.start()
    await until(lambda: frontend.is_ready)
    at = "127.0.0.1"
    yield Face(f"grpcs://{at}:{frontend.grpc_port}", f"https://{at}:{frontend.http_port}", certificates)
    await frontend.stop()


async def over_grpc(face: Face, files: ClientFiles) -> str:
    async with Client(face.grpc, ca=files.ca, cert=files.cert, key=files.key) as client:
        return (await client.list_models())[0].id


async def over_https(face: Face, files: ClientFiles) -> str:
    client = HttpClient(face.https, files=files)
    return str((await asyncio.to_thread(client.get, "/v1/models"))["data"][0]["id"])


ASK = [over_grpc, over_https]


@pytest.mark.parametrize("ask", ASK)
async def test_who_shows_a_certificate_is_served(
    face: Face, ask: Callable[[Face, ClientFiles], Awaitable[str]]
) -> None:
    assert await ask(face, face.files()) == "toy"


@pytest.mark.parametrize("ask", ASK)
async def test_none_expired_and_foreign_ones_are_not(
    face: Face, ask: Callable[[Face, ClientFiles], Awaitable[str]], tmp_path: Path
) -> None:
    ca = face.files().ca
    cert, key, _ = Certificates.make(tmp_path / "theirs").files(Role.OPERATOR)
    wrong = {
        "none": ClientFiles(ca),
        "of another authority": ClientFiles(ca, cert, key),
        "expired": face.files("old", days=1, ago=2),
        "not valid yet": face.files("early", days=2, ago=-1),
    }
    for name, files in wrong.items():
        with pytest.raises(UnavailableError):
            await ask(face, files)
            raise AssertionError(name)


@pytest.mark.parametrize("ask", ASK)
async def test_files_come_from_the_environment(
    face: Face, ask: Callable[[Face, ClientFiles], Awaitable[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = face.files()
    for variable, path in ((CA_VARIABLE, files.ca), (CERT_VARIABLE, files.cert), (KEY_VARIABLE, files.key)):
        monkeypatch.setenv(variable, str(path))
    assert await ask(face, ClientFiles.chosen()) == "toy"
    async with Client(face.grpc) as client:
        assert (await client.list_models())[0].id == "toy"


async def command(*arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "signalbox", *arguments],
        input=said,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def commands(face: Face) -> list[tuple[str, ...]]:
    load = ("--streams=2", "--requests=4", "--warm-up=1", "--output-tokens=4", "--prompt-tokens=4")
    return [
        ("generate", "the", "--address", face.grpc),
        ("chat", "--url", face.https, "--max-tokens=16"),
        ("bench", "load", face.grpc, *load, "--vocab-size=200"),
        ("bench", "load", face.https, *load, "--vocab-size=200"),
    ]


async def test_commands_show_one_by_flags(face: Face) -> None:
    files = face.files()
    believing = (f"--ca={files.ca}",)
    showing = (*believing, f"--cert={files.cert}", f"--key={files.key}")
    for arguments in commands(face):
        done = await command(*arguments, *showing, said="say it\n")
        assert done.returncode == 0, (arguments, done)
        if "bench" not in arguments:
            assert "the fox" in done.stdout
        refused = await command(*arguments, *believing, said="say it\n")
        assert refused.returncode == 1, (arguments, refused)
        if "chat" in arguments:
            assert "if it asks for a certificate, say --cert and --key" in refused.stderr


async def test_files_for_plaintext_are_refused(face: Face) -> None:
    files = face.files()
    for arguments in (
        ("generate", "the", "--address", "127.0.0.1:1"),
        ("chat", "--url", "http://127.0.0.1:1"),
        ("batch", "requests.jsonl", "--out", "answers", "--url", "http://127.0.0.1:1"),
        ("bench", "load", "grpc://127.0.0.1:1"),
    ):
        done = await command(*arguments, f"--cert={files.cert}", f"--key={files.key}")
        assert done.returncode == 1 and "plaintext: ca, cert and key are for" in done.stderr, done


def test_what_cannot_be_shown_is_named(tmp_path: Path) -> None:
    certificates = Certificates.make(tmp_path)
    cert, _, ca = certificates.files(Role.OPERATOR)
    key = certificates.files(Role.WORKER)[1]
    with pytest.raises(StartupError, match="certificate is given without its key: --cert and --key"):
        ClientFiles(ca, cert)
    with pytest.raises(StartupError, match="key is given without its certificate"):
        ClientFiles.chosen(key=key)
    with pytest.raises(StartupError, match=r"certificate .*operator\.crt with key .*worker\.key: "):
        ClientFiles(ca, cert, key).context()
    with pytest.raises(StartupError, match=r"authority .*nowhere\.crt: No such file"):
        ClientFiles(tmp_path / "nowhere.crt").pem()


async def test_a_ring_whose_faces_ask_for_one_asks_us_for_one(face: Face) -> None:
    """Else `up` would wait for frontends that turn it away."""
    cert, key, ca = face.certificates.files(Role.FRONTEND)
    flags = (f"public-tls-cert={cert}", f"public-tls-key={key}", f"public-tls-ca={ca}")
    done = await command("up", *(word for flag in flags for word in ("--frontend-set", flag)))
    assert done.returncode == 1 and f"set {CERT_VARIABLE} and {KEY_VARIABLE}" in done.stderr, done
