"""OpenAI's SDK and batches against a ring of real processes: two frontends that share ports and a directory, one of
which is killed while it works (FB1, FB2, FB3)."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest

from signalbox.cli.ring.ring import DEMO_MODEL, Ring
from tests.contract.processes import Process, until
from tests.ports import free_ports

NUM_LINES = 600


class BatchRing:
    """A scheduler, a worker that counts, and two frontends with one directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        scheduler, worker, http, grpc = (f"127.0.0.1:{port}" for port in free_ports(4))
        self.url = f"http://{http}"
        self.files = folder / "files"
        ring = Ring(
            model=DEMO_MODEL,
            served_model_name="demo",
            scheduler=scheduler,
            http=http,
            grpc=grpc,
            workers=(worker,),
            num_frontends=2,
            scheduler_flags=("--policy=priority",),
            worker_flags=("--runner=sim",),
            frontend_flags=(f"--files-dir={self.files}",),
        )
        self._services = {service.name: service for stage in ring.stages() for service in stage}
        self.processes = {name: self._start(name) for name in self._services}
        self.wait_ready()

    def _start(self, name: str) -> Process:
        return Process(self._services[name].argv, self._folder / f"{name}.log")

    def wait_ready(self) -> None:
        """Returns when both frontends have answered that they are ready."""
        names: set[str] = set()

        def ask() -> bool:
            try:
                answer = httpx.get(f"{self.url}/ready", timeout=5)
            except httpx.TransportError:
                return False
            if answer.status_code == 200:
                names.add(answer.json()["name"])
            return len(names) == 2

        until(ask, f"the frontends are not ready: {names}", 60)

    def kill(self, name: str) -> None:
        """As the kernel does when memory is short."""
        psutil.Process(self.processes[name].pid).kill()
        self.processes[name].wait(20)

    def restart(self, name: str) -> None:
        self.processes[name] = self._start(name)

    def owner(self, batch_id: str) -> str:
        """The frontend that has the lock of a batch; empty: none."""
        lock = str(self.files / "batches" / batch_id / "lock")
        for name in ("frontend-0", "frontend-1"):
            with contextlib.suppress(psutil.NoSuchProcess):
                handles = psutil.Process(self.processes[name].pid).open_files()
                if any(handle.path == lock for handle in handles):
                    return name
        return ""

    def stop(self) -> None:
        for name in ("frontend-0", "frontend-1", "worker-0", "scheduler"):
            self.processes[name].stop()


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BatchRing]:
    ring = BatchRing(tmp_path_factory.mktemp("ring"))
    yield ring
    ring.stop()


@pytest.fixture
def sdk(ring: BatchRing) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{ring.url}/v1", api_key="none", timeout=60) as client:
        yield client


def make_lines(count: int, max_tokens: int = 8) -> bytes:
    """Some chat lines, one of which no model serves."""
    lines = []
    for number in range(count):
        message = {"role": "user", "content": f"Say {number}."}
        body = {"model": "demo", "messages": [message], "max_tokens": max_tokens, "ignore_eos": True}
        if number == 7:
            body["model"] = "other"
        line = {"custom_id": f"c{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
        lines.append(json.dumps(line).encode() + b"\n")
    return b"".join(lines)


def start_batch(sdk: openai.OpenAI, lines: bytes) -> Any:
    file = sdk.files.create(file=("in.jsonl", lines), purpose="batch")
    return sdk.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")


def wait_end(sdk: openai.OpenAI, batch_id: str) -> Any:
    found: list[Any] = []

    def ended() -> bool:
        found.append(sdk.batches.retrieve(batch_id))
        return found[-1].status in ("completed", "failed", "cancelled", "expired")

    until(ended, "the batch does not end", 90)
    return found[-1]


def read(sdk: openai.OpenAI, file_id: str | None) -> list[Any]:
    if file_id is None:
        return []
    return [json.loads(line) for line in sdk.files.content(file_id).text.splitlines()]


@pytest.mark.timeout(240)
def test_a_frontend_killed_in_the_middle_of_a_batch_loses_and_doubles_no_line(
    ring: BatchRing, sdk: openai.OpenAI
) -> None:
    made = start_batch(sdk, make_lines(NUM_LINES))
    until(lambda: sdk.batches.retrieve(made.id).request_counts.completed > 100, "no line is answered", 60)  # type: ignore[union-attr]
    first = ring.owner(made.id)
    ring.kill(first)
    other = {"frontend-0": "frontend-1", "frontend-1": "frontend-0"}[first]
    until(lambda: ring.owner(made.id) == other, "the other frontend does not go on")
    ring.restart(first)
    batch = wait_end(sdk, made.id)
    assert batch.status == "completed"
    assert batch.request_counts.model_dump() == {
        "total": NUM_LINES,
        "completed": NUM_LINES - 1,
        "failed": 1,
    }
    output, errors = read(sdk, batch.output_file_id), read(sdk, batch.error_file_id)
    told = sorted(line["custom_id"] for line in output + errors)
    assert told == sorted(f"c{number}" for number in range(NUM_LINES))
    assert [line["custom_id"] for line in errors] == ["c7"]
    assert {line["response"]["body"]["usage"]["completion_tokens"] for line in output} == {8}


@pytest.mark.timeout(240)
def test_several_batches_in_two_processes(ring: BatchRing, sdk: openai.OpenAI) -> None:
    ring.wait_ready()
    made = [start_batch(sdk, make_lines(60)) for _ in range(6)]
    for each in made:
        batch = wait_end(sdk, each.id)
        told = read(sdk, batch.output_file_id) + read(sdk, batch.error_file_id)
        assert sorted(line["custom_id"] for line in told) == sorted(f"c{number}" for number in range(60))
    newest = [batch.id for batch in sdk.batches.list(limit=4)][:6]
    assert newest == [batch.id for batch in made[::-1]]


def test_a_batch_is_cancelled_through_any_process(ring: BatchRing, sdk: openai.OpenAI) -> None:
    ring.wait_ready()
    made = start_batch(sdk, make_lines(5000, max_tokens=200))
    until(lambda: sdk.batches.retrieve(made.id).request_counts.completed > 0, "no line is answered", 60)  # type: ignore[union-attr]
    for _ in range(4):  # connections of their own: some go to the other process
        with openai.OpenAI(base_url=f"{ring.url}/v1", api_key="none") as client:
            assert client.batches.cancel(made.id).status in ("cancelling", "cancelled")
    batch = wait_end(sdk, made.id)
    assert batch.status == "cancelled"
    told = read(sdk, batch.output_file_id) + read(sdk, batch.error_file_id)
    assert len({line["custom_id"] for line in told}) == len(told) == 5000


@pytest.mark.timeout(240)
def test_the_command_answers_a_file(ring: BatchRing, tmp_path: Path) -> None:
    """`signalbox batch`, as people run it."""
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(make_lines(20))
    command = [sys.executable, "-m", "signalbox", "batch", "--url", ring.url, "--out", str(out)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, done.stdout) == (1, "completed: 19 of 20 lines answered, 1 not\n"), done.stderr
    assert len(out.read_text().splitlines()) == 19
    assert json.loads((tmp_path / "out.jsonl.errors").read_text())["custom_id"] == "c7"
    batch_id = next(word for word in done.stderr.split() if word.startswith("batch_"))
    again = subprocess.run([*command, batch_id], capture_output=True, text=True, timeout=90, check=False)
    assert again.stdout == done.stdout
    source.write_bytes(make_lines(2) + b"garbage")
    wrong = subprocess.run([*command, str(source)], capture_output=True, text=True, timeout=90, check=False)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "line 3: the line is not JSON" in wrong.stderr
