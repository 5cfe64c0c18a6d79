"""The rules and boards of k8s/components/monitoring, and a Prometheus that scrapes a whole ring."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.e2e.conftest import RunningRing, launch
from tests.ports import free_ports
from tests.telemetry.conftest import environment
from tests.telemetry.receiver import Receiver
from tools.boards import FOLDER

TIMEOUT_S = 60
SERVICES = ("scheduler", "worker", "frontend", "relay")


def read_rules() -> dict[str, Any]:
    """A rule file as Prometheus reads it: the groups of the PrometheusRule."""
    spec: dict[str, Any] = yaml.safe_load((FOLDER / "rules.yaml").read_text())["spec"]
    return spec


def rules_of(kind: str) -> list[dict[str, Any]]:
    """All of one kind: `alert` or `record`."""
    return [rule for group in read_rules()["groups"] for rule in group["rules"] if kind in rule]


def board_queries() -> list[str]:
    """The queries of all panels, with a time where Grafana puts one."""
    boards = yaml.safe_load((FOLDER / "boards.yaml").read_text())
    queries = [query for panels in boards.values() for panel in panels for query in panel["queries"].values()]
    return [query.replace("$__rate_interval", "1m") for query in queries]


@pytest.fixture(scope="session")
def promtool() -> str:
    """Debian's, in the package prometheus."""
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("promtool is not installed; .ci/run installs the package prometheus")
    return path


@pytest.fixture(scope="session")
def program() -> str:
    """Prometheus itself."""
    path = shutil.which("prometheus")
    if path is None:
        pytest.skip("prometheus is not installed; .ci/run installs it")
    return path


def ask_prometheus(url: str, what: str, **parameters: str) -> Any:
    """The data of an answer of the API of the one at `url`."""
    answer = httpx.get(f"{url}/api/v1/{what}", params=parameters, timeout=10)
    assert answer.status_code == 200, f"{parameters}: {answer.text}"
    return answer.json()["data"]


class Monitored:
    """A ring of all services, and a Prometheus that scrapes them each second and whose alerts wait for nothing."""

    def __init__(self, ring: RunningRing, pages: dict[str, str], url: str) -> None:
        self.ring, self.pages, self._url = ring, pages, url
        """pages: host:port of each service's metrics."""

    def ask(self, what: str, **parameters: str) -> Any:
        """The data of an answer of Prometheus's API."""
        return ask_prometheus(self._url, what, **parameters)

    def firing(self) -> set[tuple[str, str]]:
        """(alert, job or worker) of what fires."""
        alerts = [alert["labels"] for alert in self.ask("alerts")["alerts"] if alert["state"] == "firing"]
        return {(each["alertname"], each.get("worker_id") or each.get("job", "")) for each in alerts}

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Returns once `condition` holds."""
        give_up = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < give_up, f"{what}; what fires: {self.firing()}"
            time.sleep(0.2)


@pytest.fixture(scope="package")
def monitored(tmp_path_factory: pytest.TempPathFactory, promtool: str, program: str) -> Iterator[Monitored]:
    """One ring for all tests, of the simulated model, traced."""
    folder = tmp_path_factory.mktemp("monitored")
    *metrics, relay_listen, relay_metrics, prometheus = free_ports(6)
    pages = dict(zip(SERVICES, (f"127.0.0.1:{port}" for port in (*metrics, relay_metrics)), strict=True))
    with ExitStack() as stack:
        receiver = Receiver()
        stack.callback(receiver.stop)
        options = ("--no-proof", "--runner", "sim", "--metrics", pages["scheduler"])
        safe_mode = ("--scheduler-set", "safe-mode-ttft-ms=5000")
        with environment(OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint):
            ring = launch(folder / "ring", *options, "--scheduler-set", "policy=priority", *safe_mode)
        stack.callback(lambda: ring.process.poll() is None and ring.stop())
        ring.wait_for("signalbox is up")
        relay = [sys.executable, "-m", "worker_svc.relay", "--scheduler", ring.scheduler]
        relay += ["--listen", f"127.0.0.1:{relay_listen}", "--metrics", pages["relay"]]
        run_beside(stack, relay, folder)
        config = _write_config(folder, pages)
        url = start_prometheus(stack, program, config, prometheus)
        yield Monitored(ring, pages, url)


def start_prometheus(stack: ExitStack, program: str, config: Path, port: int) -> str:
    """The URL of one that runs until the stack ends, with its data beside its configuration."""
    listen, store = f"127.0.0.1:{port}", f"--storage.tsdb.path={config.parent / 'store'}"
    command = [program, f"--config.file={config}", store, f"--web.listen-address={listen}"]
    run_beside(stack, [*command, "--enable-feature=exemplar-storage", "--log.level=warn"], config.parent)
    wait_ready(listen)
    return f"http://{listen}"


def run_beside(stack: ExitStack, command: list[str], folder: Path) -> None:
    """A process until the stack ends, with its log in the folder."""
    log = stack.enter_context((folder / f"{Path(command[0]).name}-{len(command)}.log").open("wb"))
    process = stack.enter_context(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder))
    stack.callback(process.terminate)


def _write_config(folder: Path, pages: dict[str, str]) -> Path:
    rules = read_rules()
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = "0s"
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    jobs = [
        {"job_name": f"signalbox-{name}", "static_configs": [{"targets": [page]}]}
        for name, page in pages.items()
    ]
    every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config = folder / "prometheus.yaml"
    config.write_text(yaml.safe_dump({"global": every, "rule_files": ["rules.yaml"], "scrape_configs": jobs}))
    return config


def wait_ready(listen: str) -> None:
    """Returns once the Prometheus at host:port answers."""
    give_up = time.monotonic() + TIMEOUT_S
    while time.monotonic() < give_up:
        try:
            if httpx.get(f"http://{listen}/-/ready", timeout=2).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    pytest.fail("Prometheus did not get ready")
