"""TL8: what operators say of a service's metrics, and when it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from frontend_svc.config import FrontendSettings
from scheduler_svc.config import SchedulerSettings
from signalbox.errors import StartupError
from signalbox.links.tls import identity as identities
from signalbox.links.tls.roles import Role
from signalbox.runtime import config
from signalbox.telemetry.settings import MetricsSettings
from tests.signalbox.links.tls.certificates import Certificates
from worker_svc.config import WorkerSettings
from worker_svc.relay.config import RelaySettings

EVERYWHERE = "--metrics=0.0.0.0:9300"


@pytest.fixture(params=[SchedulerSettings, WorkerSettings, RelaySettings, FrontendSettings])
def service(request: pytest.FixtureRequest) -> type[MetricsSettings]:
    """Each service's settings in turn."""
    kind: type[MetricsSettings] = request.param
    return kind


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certs"))


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    yield
    identities.take_on(None)


def files(certificates: Certificates, flags: str, role: Role = Role.WORKER) -> list[str]:
    """Certificate and key, and for links the authority: they take all three."""
    said = dict(zip(("cert", "key", "ca"), certificates.files(role), strict=True))
    return [f"--{flags}-{name}={path}" for name, path in said.items() if name != "ca" or flags == "tls"]


def test_metrics_are_as_the_links_unless_something_else_is_said(
    service: type[MetricsSettings], certificates: Certificates
) -> None:
    links = files(certificates, "tls")
    assert config.load(service, [EVERYWHERE]).metrics_guard() is None
    assert config.load(service, [EVERYWHERE, *links]).metrics_guard() is not None
    assert config.load(service, [EVERYWHERE, *links, "--no-metrics-tls"]).metrics_guard() is None
    assert config.load(service, [EVERYWHERE, *files(certificates, "metrics-tls")]).metrics_guard() is not None
    assert config.load(service, links).metrics_guard() is None


def test_a_certificate_of_its_own_is_what_the_port_shows(certificates: Certificates, tmp_path: Path) -> None:
    """Here the service's could not even be read."""
    links = [f"--tls-{name}={tmp_path / name}" for name in ("cert", "key", "ca")]
    own = files(certificates, "metrics-tls")
    assert config.load(SchedulerSettings, [EVERYWHERE, *links, *own]).metrics_guard() is not None
    with pytest.raises(StartupError, match=r"--metrics-tls-cert .*cert"):
        config.load(SchedulerSettings, [EVERYWHERE, *links]).metrics_guard()


def test_plaintext_beyond_this_machine_has_to_be_asked_for(
    service: type[MetricsSettings], certificates: Certificates
) -> None:
    """As for every other port; before, nobody asked for metrics."""
    plain = r"^0\.0\.0\.0:9300 can be reached from other machines, in plaintext"
    with pytest.raises(StartupError, match=plain):
        config.load(service, [EVERYWHERE]).take_effect()
    with pytest.raises(StartupError, match=plain):
        config.load(service, [EVERYWHERE, *files(certificates, "tls"), "--no-metrics-tls"]).take_effect()
    config.load(service, [EVERYWHERE, "--insecure"]).take_effect()
    config.load(service, ["--metrics=127.0.0.1:9300"]).take_effect()
    config.load(service, [EVERYWHERE, *files(certificates, "tls")]).take_effect()
    config.load(service, [EVERYWHERE, *files(certificates, "metrics-tls")]).take_effect()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--metrics=9300"], "--metrics .*must be host:port"),
        (["--metrics=127.0.0.1:65536"], "--metrics .*must be host:port"),
        (["--metrics-tls-ca=x"], "--metrics-tls-ca is for the port of --metrics, and none is given"),
        (["--metrics-tls-cert=x", "--metrics-tls-key=x"], "--metrics-tls-cert is for the port of --metrics"),
        ([EVERYWHERE, "--metrics-tls-cert=x"], "must be given together"),
        ([EVERYWHERE, "--metrics-tls-key=x"], "must be given together"),
        ([EVERYWHERE, "--metrics-tls-ca=x"], "--metrics-tls-ca needs a certificate"),
        (
            [EVERYWHERE, "--no-metrics-tls", "--metrics-tls-cert=x", "--metrics-tls-key=x"],
            "--metrics-tls-cert and --no-metrics-tls exclude each other",
        ),
    ],
)
def test_slips_are_told(service: type[MetricsSettings], arguments: list[str], said: str) -> None:
    """What is asked for and could not be is refused, and not left out."""
    with pytest.raises(StartupError, match=said):
        config.load(service, arguments)


def test_an_authority_that_cannot_be_read_is_told(certificates: Certificates, tmp_path: Path) -> None:
    gone = tmp_path / "gone.crt"
    settings = config.load(
        RelaySettings, [EVERYWHERE, *files(certificates, "tls"), f"--metrics-tls-ca={gone}"]
    )
    with pytest.raises(StartupError, match=rf"--metrics-tls-ca {gone}: No such file"):
        settings.metrics_guard()
