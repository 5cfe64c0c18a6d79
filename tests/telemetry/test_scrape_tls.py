"""TL8: metrics over TLS, with silent, odd and wrong clients beside scrapes, and certificates that are replaced."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from signalbox.links.tls.roles import Role
from signalbox.telemetry import scrape_server
from signalbox.telemetry.scrape_server import MOST_CONNECTIONS
from tests.signalbox.links.tls.certificates import Certificates
from tests.telemetry.scraped import SAMPLE, Files, believing, place, scrape, serving, unverified

NUM_TRIES = 10
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("theirs"))


@pytest.fixture(scope="module")
def port(ours: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Everybody may read here."""
    with serving(place(ours, tmp_path_factory.mktemp("files"))) as port:
        yield port


@pytest.fixture(scope="module")
def guarded(ours: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Only those with a certificate may read here."""
    with serving(place(ours, tmp_path_factory.mktemp("files"), asks=True)) as port:
        yield port


@pytest.mark.parametrize("said", [b"", HALF_A_HELLO], ids=["nothing", "half a hello"])
def test_many_that_make_no_handshake_keep_nobody_out(port: int, ours: Certificates, said: bytes) -> None:
    """TL8. With prometheus_client's own TLS the first of them ended all scrapes."""
    context, before = believing(ours), threading.active_count()
    with contextlib.ExitStack() as held:
        for number in range(3 * MOST_CONNECTIONS):
            silent = held.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            with contextlib.suppress(OSError):  # it may be the next to be closed
                silent.sendall(said)
            if number % MOST_CONNECTIONS == 0:
                assert SAMPLE in scrape(port, context).text
        assert threading.active_count() - before <= MOST_CONNECTIONS + 5
        assert SAMPLE in scrape(port, context).text


def test_a_handshake_is_a_connection(port: int, ours: Certificates) -> None:
    """TL8."""
    with contextlib.ExitStack() as held:
        dial = ("127.0.0.1", port)
        first, *_ = [held.enter_context(socket.create_connection(dial, 10)) for _ in range(MOST_CONNECTIONS)]
        assert scrape(port, believing(ours)).status == 200
        assert first.recv(1) == b""


@pytest.mark.parametrize("said", [b"", HALF_A_HELLO], ids=["nothing", "half a hello"])
def test_a_handshake_that_does_not_end_is_closed(
    port: int, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TL8."""
    monkeypatch.setattr(scrape_server._Handler, "timeout", 0.2)
    with socket.create_connection(("127.0.0.1", port), 10) as slow:
        slow.sendall(said)
        assert slow.recv(1) == b""


def test_silence_behind_the_handshake_ends_too(
    port: int, ours: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrape_server._Handler, "timeout", 0.2)
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        believing(ours).wrap_socket(plain, server_hostname="worker.signalbox") as link,
    ):
        link.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert link.recv(1) == b""


def test_plain_http_is_told_that_here_is_tls(port: int, ours: Certificates) -> None:
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: somebody\r\n\r\n")
        answer = b"".join(iter(lambda: plain.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.0 400 ") and b"say https" in answer
    assert SAMPLE.encode() not in answer
    assert scrape(port, believing(ours)).status == 200


def test_neither_another_authority_nor_another_role_is_taken_for_the_server(
    port: int, ours: Certificates, theirs: Certificates
) -> None:
    """TL3."""
    with pytest.raises(ssl.SSLCertVerificationError, match="verify failed"):
        scrape(port, believing(theirs))
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        scrape(port, believing(ours), "scheduler.signalbox")


def test_a_probe_of_the_kubelet_passes(port: int) -> None:
    """It verifies nothing, and shows nothing."""
    assert scrape(port, unverified(), path="/health").status == 200


def test_who_shows_no_certificate_of_the_authority_reads_nothing(
    guarded: int, ours: Certificates, theirs: Certificates
) -> None:
    """TL8."""
    expired = ours.files(Role.MONITOR, "expired", days=1, ago=2)
    for context, reason in (
        (believing(ours), "certificate required"),
        (unverified(), "certificate required"),
        (believing(ours, showing=theirs.files(Role.MONITOR)), "unknown ca"),
        (believing(ours, showing=expired), "certificate expired"),
    ):
        for _ in range(NUM_TRIES):  # the reason comes through, whether it or the request was sent first
            with pytest.raises(ssl.SSLError, match=reason):
                scrape(guarded, context)
    assert scrape(guarded, believing(ours, showing=ours.files(Role.MONITOR))).status == 200


@pytest.mark.parametrize("role", Role)
def test_monitors_and_operators_read_and_no_other_role(guarded: int, ours: Certificates, role: Role) -> None:
    """TL8."""
    answer = scrape(guarded, believing(ours, showing=ours.files(role)))
    if role in (Role.MONITOR, Role.OPERATOR):
        assert answer.status == 200 and SAMPLE in answer.text
    else:
        assert answer.status == 403 and SAMPLE not in answer.text


def test_an_authority_for_other_things_may_say_who_reads(
    ours: Certificates, theirs: Certificates, tmp_path: Path
) -> None:
    """TL8: where an operator has chosen an authority whose certificates say no role of the ring."""
    files = place(ours, tmp_path / "files")
    files = Files(files.cert, files.key, theirs.folder / "ca.crt", domain="other.example")
    with serving(files) as port:
        assert scrape(port, believing(ours, showing=theirs.files(Role.WORKER))).status == 200
        with pytest.raises(ssl.SSLError):
            scrape(port, believing(ours, showing=ours.files(Role.MONITOR)))


def test_renewed_certificates_are_shown_and_no_scrape_fails(ours: Certificates, tmp_path: Path) -> None:
    """TL7, TL8: one is replaced by the next while others scrape all the time."""
    files, seen, failed = place(ours, tmp_path / "files", name="first"), set[bytes](), list[Exception]()
    context, is_over = believing(ours), threading.Event()

    def keep_scraping(at: int) -> None:
        while not is_over.is_set():
            try:
                assert scrape(at, context).status == 200
            except Exception as error:
                failed.append(error)

    with serving(files) as at:
        scrapers = [threading.Thread(target=keep_scraping, args=(at,)) for _ in range(3)]
        for scraper in scrapers:
            scraper.start()
        for name in ("second", "third"):
            seen.add(scrape(at, context).shown)
            place(ours, tmp_path / "files", name=name)
        seen.add(scrape(at, context).shown)
        is_over.set()
        for scraper in scrapers:
            scraper.join()
    assert failed == []
    assert len(seen) == 3


def test_files_that_do_not_fit_each_other_yet_change_nothing(
    ours: Certificates, theirs: Certificates, tmp_path: Path
) -> None:
    """TL7."""
    files = place(ours, tmp_path / "files")
    with serving(files) as port:
        before = scrape(port, believing(ours)).shown
        shutil.copy(theirs.files(Role.WORKER)[1], files.key)
        assert scrape(port, believing(ours)).shown == before
        shutil.copy(theirs.files(Role.WORKER)[0], files.cert)
        assert scrape(port, believing(theirs)).shown != before


def test_an_authority_that_was_replaced_lets_nobody_in_any_more(
    ours: Certificates, theirs: Certificates, tmp_path: Path
) -> None:
    """TL8: without a restart, unlike links: each change makes a new context."""
    with serving(place(ours, tmp_path / "files", asks=True)) as port:
        old, new = (each.files(Role.MONITOR) for each in (ours, theirs))
        assert scrape(port, believing(ours, showing=old)).status == 200
        place(theirs, tmp_path / "files", asks=True)
        assert scrape(port, believing(theirs, showing=new)).status == 200
        with pytest.raises(ssl.SSLError):
            scrape(port, believing(theirs, showing=old))
