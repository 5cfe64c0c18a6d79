"""API keys at real servers: the key file changes while they run."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from frontend_svc.server import Frontend
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.api_keys import make_key
from signalbox.errors import (
    AuthenticationError,
)
from tests.frontend_svc.guarded import KeyRing, Start, ask, grpc_of, until_answer
from tests.frontend_svc.helpers import STOP, serve_text, until
from tests.frontend_svc.scripted_cluster import Cluster, Row


async def test_keys_come_and_go_while_the_server_runs(
    guarded: Frontend, cluster: Cluster, tokenizer: Tokenizer, ring: KeyRing
) -> None:
    serve_text(cluster, tokenizer, "x")
    ring.add("late")
    await until_answer(guarded, ring.headers("late"), 200)
    ring.remove("acme")
    await until_answer(guarded, ring.headers("acme"), 401)
    assert (await ask(guarded, ring.headers("late"))).status_code == 200


async def test_what_runs_goes_on_when_its_key_is_revoked(
    guarded: Frontend, cluster: Cluster, ring: KeyRing
) -> None:
    asking = asyncio.create_task(ask(guarded, ring.headers("acme")))
    attempt = (await cluster.scheduler.next("submit")).ref.attempt
    ring.remove("acme")
    await until_answer(guarded, ring.headers("acme"), 401)
    cluster.worker.emit(Row(attempt, 0, [9], STOP))
    assert (await asking).status_code == 200


async def test_a_slip_of_the_pen_changes_nothing(
    guarded: Frontend,
    cluster: Cluster,
    tokenizer: Tokenizer,
    ring: KeyRing,
    caplog: pytest.LogCaptureFixture,
) -> None:
    serve_text(cluster, tokenizer, "x")
    ring.path.write_text("[[")
    await until(lambda: "the keys of before stay valid" in caplog.text)
    assert (await ask(guarded, ring.headers("acme"))).status_code == 200
    assert (await ask(guarded, {})).status_code == 401
    caplog.clear()
    ring.path.unlink()
    await until(lambda: "the keys of before stay valid" in caplog.text)
    assert (await ask(guarded, ring.headers("acme"))).status_code == 200
    ring.add("late")
    await until_answer(guarded, ring.headers("late"), 200)


async def test_a_mounted_secret_is_a_link_that_moves(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, ring: KeyRing, tmp_path: Path
) -> None:
    serve_text(cluster, tokenizer, "x")
    new = tmp_path / "new"
    new.write_text(ring.path.read_text())
    link = tmp_path / "mounted"
    link.symlink_to(ring.path)
    guarded = await start(key_file=link)
    ring.path = new
    ring.remove("acme")
    ring.add("late")
    spare = tmp_path / "spare"
    spare.symlink_to(new)
    spare.rename(link)
    await until_answer(guarded, ring.headers("late"), 200)
    assert (await ask(guarded, ring.headers("acme"))).status_code == 401


async def test_keys_are_never_logged(
    guarded: Frontend,
    cluster: Cluster,
    tokenizer: Tokenizer,
    ring: KeyRing,
    caplog: pytest.LogCaptureFixture,
) -> None:
    serve_text(cluster, tokenizer, "x")
    caplog.set_level(logging.DEBUG)
    unknown, key = make_key().text, ring.keys["acme"].text
    assert (await ask(guarded, {"authorization": f"Bearer {unknown}"})).status_code == 401
    assert (await ask(guarded, ring.headers("acme"))).status_code == 200
    async with grpc_of(guarded, unknown) as client:
        with pytest.raises(AuthenticationError):
            await client.list_models()
    for broken in (f'"00000000" = {{ hash = "{key}", tenant = "t" }}', f"{key} = {key}", key):
        caplog.clear()
        ring.path.write_text(broken)
        await until(lambda: "the keys of before stay valid" in caplog.text)
        assert key not in caplog.text
    assert unknown not in caplog.text
