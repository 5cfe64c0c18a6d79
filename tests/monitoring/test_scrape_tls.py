"""TL8: a real Prometheus scrapes over TLS, and what it says of a port that it may not read."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from signalbox.links.tls.roles import Role
from signalbox.telemetry.scrape_server import MOST_CONNECTIONS
from tests.monitoring.conftest import ask_prometheus, start_prometheus
from tests.ports import free_ports
from tests.signalbox.links.tls.certificates import Certificates
from tests.telemetry.scraped import Files, believing, scrape, serving

TIMEOUT_S = 20
EVERY = "1s"
COPIES = 6
"""So many times a job has its target, at other moments of each second."""
SEVERAL = COPIES
REASONS = {
    "monitor": "",
    "nobody": "certificate required",
    "worker": "403 Forbidden",
    "plain": "400 Bad Request",
    "elsewhere": "not worker.signalbox",
}
"""What Prometheus says of its jobs: `nobody` shows no certificate, `worker` that of a worker, `plain` speaks plain
HTTP, and `elsewhere` expects another server."""


class Scraped:
    """A port with metrics that asks for certificates, and a Prometheus whose jobs show one, or not."""

    def __init__(self, folder: Path, port: int, url: str) -> None:
        """folder: with the files of both ends."""
        self._folder, self.port, self._url = folder, port, url

    def errors(self) -> dict[str, str]:
        """What went wrong with the last scrape of each job; empty: nothing."""
        targets = ask_prometheus(self._url, "targets")["activeTargets"]
        return {each["labels"]["job"]: each["lastError"] for each in targets if each["health"] != "unknown"}

    def value(self, query: str) -> int:
        """What a query for one number says; 0: nothing yet."""
        found = ask_prometheus(self._url, "query", query=query)["result"]
        return int(found[0]["value"][1]) if found else 0

    def wait_for_scrapes(self) -> None:
        """Returns after several more. None of all failed until then."""
        number = 'sum(count_over_time(up{job="monitor"}[1h]))'
        enough, give_up = self.value(number) + SEVERAL, time.monotonic() + TIMEOUT_S
        while self.value(number) < enough:
            assert time.monotonic() < give_up, self.errors()
            time.sleep(0.1)
        assert self.value('min(min_over_time(up{job="monitor"}[1h]))') == 1

    def put(self, name: str, content: bytes) -> None:
        """Replaces a file as a whole."""
        put(self._folder, name, content)


def put(folder: Path, name: str, content: bytes) -> None:
    """Replaces a file as a whole, or makes it."""
    (folder / "new").write_bytes(content)
    (folder / "new").rename(folder / name)


def leaves_of(certificates: Certificates) -> dict[str, bytes]:
    """Contents of the files of server and clients, keys first."""
    roles = {"tls": Role.SCHEDULER, "monitor": Role.MONITOR, "worker": Role.WORKER}
    names = {"key": 1, "crt": 0}
    return {
        f"{name}.{kind}": certificates.files(role)[index].read_bytes()
        for kind, index in names.items()
        for name, role in roles.items()
    }


def job(name: str, port: int, **tls: str) -> dict[str, Any]:
    """A scrape configuration; without `tls` it speaks plain HTTP."""
    target = [f"127.0.0.1:{port}"]
    copies = [{"targets": target, "labels": {"copy": str(number)}} for number in range(COPIES)]
    made = {"job_name": name, "static_configs": copies}
    return made | ({"scheme": "https", "tls_config": {"ca_file": "ca.crt", **tls}} if tls else {})


def shown(role: str) -> dict[str, str]:
    return {"cert_file": f"{role}.crt", "key_file": f"{role}.key"}


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> list[Certificates]:
    """That of the beginning, and the next."""
    return [Certificates.make(tmp_path_factory.mktemp(name)) for name in ("first", "second")]


@pytest.fixture(scope="module")
def scraped(
    authorities: list[Certificates], tmp_path_factory: pytest.TempPathFactory, program: str
) -> Iterator[Scraped]:
    folder = tmp_path_factory.mktemp("scraped")
    for name, content in leaves_of(authorities[0]).items():
        put(folder, name, content)
    put(folder, "ca.crt", (authorities[0].folder / "ca.crt").read_bytes())
    ours = {"server_name": "scheduler.signalbox"}
    with (
        serving(Files(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")) as port,
        ExitStack() as stack,
    ):
        jobs = [
            job("monitor", port, **ours, **shown("monitor")),
            job("nobody", port, **ours),
            job("worker", port, **ours, **shown("worker")),
            job("plain", port),
            job("elsewhere", port, server_name="worker.signalbox", **shown("monitor")),
        ]
        config = folder / "prometheus.yaml"
        every = {"scrape_interval": EVERY, "scrape_timeout": EVERY}
        config.write_text(yaml.safe_dump({"global": every, "scrape_configs": jobs}))
        (own,) = free_ports(1)
        yield Scraped(folder, port, start_prometheus(stack, program, config, own))


def test_a_monitor_reads_and_all_others_are_told_why_not(scraped: Scraped) -> None:
    give_up = time.monotonic() + TIMEOUT_S
    while len(errors := scraped.errors()) < len(REASONS):
        assert time.monotonic() < give_up, errors
        time.sleep(0.1)
    for name, reason in REASONS.items():
        assert reason in errors[name] and bool(errors[name]) == bool(reason), (name, errors[name])


def test_silent_clients_do_not_keep_it_out(scraped: Scraped) -> None:
    with ExitStack() as held:
        for _ in range(3 * MOST_CONNECTIONS):
            held.enter_context(socket.create_connection(("127.0.0.1", scraped.port), 10))
        scraped.wait_for_scrapes()


def test_no_scrape_fails_while_an_authority_takes_the_place_of_another(
    scraped: Scraped, authorities: list[Certificates]
) -> None:
    """TL7, TL8: both believe both, then show certificates of the new one, then believe it alone."""
    first, second = ((each.folder / "ca.crt").read_bytes() for each in authorities)
    for files in ({"ca.crt": first + second}, leaves_of(authorities[1]), {"ca.crt": second}):
        for name, content in files.items():
            scraped.put(name, content)
        scraped.wait_for_scrapes()
    old = believing(*authorities, showing=authorities[0].files(Role.MONITOR))
    with pytest.raises(ssl.SSLError, match="unknown ca"):
        scrape(scraped.port, old, "scheduler.signalbox")
