"""The page's files and headers, and the board's events: one watch of the scheduler, however many boards are open."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest

from frontend_svc.api.page.board_stream import BoardStream
from frontend_svc.api.page.page import WEB
from frontend_svc.config import FrontendSettings
from frontend_svc.server import Frontend
from scheduler_svc.admin.servicer import AdminServicer
from scheduler_svc.step_loop import StepLoop
from signalbox.errors import ResourceExhaustedError
from tests.frontend_svc.helpers import until
from tests.frontend_svc.scripted_cluster import Cluster
from tests.ports import free_ports
from tests.scheduler_svc.attached import dial, make_hello, serve


class WatchedServicer(AdminServicer):
    """Counts who watches."""

    def __init__(self, loop: StepLoop) -> None:
        super().__init__(loop)
        self.num_watching = self.num_calls = 0
        WatchedServicer.newest = self

    newest: WatchedServicer

    async def WatchBoard(self, request: Any, context: Any) -> None:  # noqa: N802
        self.num_watching += 1
        self.num_calls += 1
        try:
            await super().WatchBoard(request, context)
        finally:
            self.num_watching -= 1


def data_of(event: bytes) -> Any:
    return json.loads(event.decode().removeprefix("data: "))


# ---- the page


async def test_the_page_lets_no_inline_script_and_no_other_host_in(http: httpx.AsyncClient) -> None:
    answer = await http.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {name: policy[name] for name in ("script-src", "style-src", "connect-src")} == {
        "script-src": "'self'",
        "style-src": "'self'",
        "connect-src": "'self'",
    }
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_everything_that_the_page_names_is_served(http: httpx.AsyncClient) -> None:
    named = re.findall(r'(?:src|href)="(/[^"]+)"', (await http.get("/")).text)
    assert len(named) >= 5
    for path in named:
        answer = await http.get(path)
        assert answer.status_code == 200, path
        assert "content-security-policy" in answer.headers


@pytest.mark.parametrize("path", ["/web/nothing.js", "/web/..%2fweb_page.py", "/web/../web_page.py"])
async def test_nothing_else_is_served(http: httpx.AsyncClient, path: str) -> None:
    assert (await http.get(path)).status_code == 404


def test_no_file_of_ours_contacts_another_host_or_reads_text_as_html() -> None:
    ours = [path for path in WEB.iterdir() if not path.name.startswith("uplot") and path.suffix != ".svg"]
    assert len(ours) > 8
    for path in ours:
        text = path.read_text()
        assert "://" not in text, path
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", " style="):
            assert word not in text, (path, word)


async def test_the_page_can_be_switched_off(cluster: Cluster, model_directory: Path) -> None:
    settings = FrontendSettings(
        scheduler=f"127.0.0.1:{cluster.scheduler_port}",
        http="127.0.0.1:0",
        grpc="127.0.0.1:0",
        model=model_directory,
        page=False,
        drain_s=0,
    )
    frontend = Frontend(settings)
    await frontend.start()
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{frontend.http_port}") as http:
            for path in ("/web/page.js", "/board/events"):
                assert (await http.get(path)).status_code == 404
            bare = await http.get("/")  # agents look there whether somebody serves
            assert bare.status_code == 200 and "<html" not in bare.text
            assert (await http.get("/health")).status_code == 200
    finally:
        await frontend.stop()


# ---- the board's events


async def test_many_boards_are_one_watch() -> None:
    async with serve(admin=WatchedServicer) as (_, address), dial(address) as stub:
        worker = stub.AttachWorker()
        await worker.write(make_hello("w"))
        await worker.read()
        board = BoardStream(lambda: address)
        streams = [board.events() for _ in range(20)]
        first = await asyncio.gather(*(anext(stream) for stream in streams))
        await asyncio.gather(*(anext(stream) for stream in streams))
        assert len(set(first)) == 1
        (told,) = data_of(first[0])["workers"]
        assert (told["worker_id"], told["num_blocks"]) == ("w", 64)
        assert (WatchedServicer.newest.num_watching, WatchedServicer.newest.num_calls) == (1, 1)
        for stream in streams:
            await stream.aclose()
        await until(lambda: WatchedServicer.newest.num_watching == 0)
        worker.cancel()


async def test_boards_say_when_the_scheduler_is_away_and_go_on_when_it_is_back() -> None:
    (port,) = free_ports(1)
    board = BoardStream(lambda: f"127.0.0.1:{port}")
    async with aclosing(board.events()) as events:
        event = await anext(events)
        assert event.startswith(b"event: away\n")
        assert f"127.0.0.1:{port}" in event.decode()
        async with serve(port=port), asyncio.timeout(10):
            while (event := await anext(events)).startswith(b"event: away\n"):
                pass
            assert data_of(event)["workers"] == []


async def test_too_many_boards_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontend_svc.api.page.board_stream.MAX_BOARDS", 1)
    async with serve() as (_, address):
        board = BoardStream(lambda: address)
        async with aclosing(board.events()) as events:
            await anext(events)
            with pytest.raises(ResourceExhaustedError, match=r"1 of 1 boards .*; try again in 10 s"):
                board.check_room()
        board.check_room()


async def test_a_stopping_frontend_ends_its_boards(frontend: Frontend, http: httpx.AsyncClient) -> None:
    """The scripted scheduler has no board: the stream says so, and ends with the frontend."""
    async with http.stream("GET", "/board/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        chunks = answer.aiter_bytes()
        assert (await anext(chunks)).startswith(b"event: away\n")
        stopping = asyncio.create_task(frontend.stop())
        async with asyncio.timeout(2):
            async for _ in chunks:
                pass
        await stopping
