"""/v1/files with OpenAI's SDK: whole or not at all (FB1), each tenant's own (FB7)."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import openai
import pytest

from frontend_svc.api.batches import upload
from frontend_svc.batches import quota
from frontend_svc.batches.batch_store import BatchStore
from frontend_svc.batches.file_store import ABANDONED_S, FileStore
from frontend_svc.batches.ids import BATCH_PREFIX, make_id
from frontend_svc.batches.quota import DiskQuota
from frontend_svc.batches.threads import in_thread
from frontend_svc.server import Frontend
from signalbox.errors import StartupError
from tests.frontend_svc.guarded import KeyRing, Start, http_of, sdk_of
from tests.frontend_svc.helpers import until

EXPIRY = {"anchor": "created_at", "seconds": 3600}


async def test_a_file_comes_and_goes(client: openai.AsyncOpenAI, folder: Path) -> None:
    file = await client.files.create(file=("in.jsonl", b"content\r\n"), purpose="batch", expires_after=EXPIRY)  # type: ignore[arg-type]
    assert (file.bytes, file.filename, file.purpose, file.status) == (9, "in.jsonl", "batch", "processed")
    assert file.expires_at == file.created_at + 3600
    assert await client.files.retrieve(file.id) == file
    assert (await client.files.content(file.id)).content == b"content\r\n"
    assert [each.id async for each in client.files.list(purpose="batch")] == [file.id]
    assert [each.id async for each in client.files.list(purpose="user_data")] == []
    assert (await client.files.delete(file.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await client.files.retrieve(file.id)
    with pytest.raises(openai.NotFoundError):
        await client.files.content(file.id)
    assert list((folder / "files").iterdir()) == []


async def test_pages_of_files(client: openai.AsyncOpenAI) -> None:
    made = [(await client.files.create(file=b"x", purpose="batch")).id for _ in range(5)]
    assert [each.id async for each in client.files.list(limit=2)] == made[::-1]
    assert [each.id async for each in client.files.list(limit=2, order="asc")] == made


async def test_a_large_file_is_streamed_to_the_disk(client: openai.AsyncOpenAI) -> None:
    content = os.urandom(12 << 20)
    file = await client.files.create(file=("in.jsonl", content), purpose="batch")
    assert (await client.files.content(file.id)).content == content


@pytest.mark.parametrize(
    ("data", "names"),
    [
        ({}, "purpose"),
        ({"purpose": "fine-tune"}, "purpose"),
        ({"purpose": "batch", "more": "x"}, "more"),
        ({"purpose": "batch", "expires_after[anchor]": "created_at"}, "expires_after"),
        (
            {"purpose": "batch", "expires_after[anchor]": "created_at", "expires_after[seconds]": "5"},
            "expires_after.seconds",
        ),
    ],
)
async def test_a_wrong_form_leaves_nothing(
    keeper: Frontend, folder: Path, data: dict[str, str], names: str
) -> None:
    async with http_of(keeper) as http:
        answer = await http.post("/v1/files", data=data, files={"file": ("a", b"x")})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, names)
        assert (await http.post("/v1/files", data={"purpose": "batch"})).status_code == 400
        broken = {"content-type": "multipart/form-data; boundary=b"}
        answer = await http.post(
            "/v1/files",
            headers=broken,
            content=b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"',
        )
        assert answer.status_code == 400
    assert list((folder / "files").iterdir()) == []


async def test_too_large_a_file_is_refused(start: Start, folder: Path) -> None:
    frontend = await start(key_file=None, files_dir=folder, file_max_bytes=1000)
    async with sdk_of(frontend, "none") as client:
        for size in (1001, 1 << 20):
            with pytest.raises(openai.APIStatusError) as error:
                await client.files.create(file=b"x" * size, purpose="batch")
            assert error.value.status_code == 413
        await client.files.create(file=b"x" * 1000, purpose="batch")
    assert len(list((folder / "files").iterdir())) == 2


async def test_no_more_is_kept_than_may_be(
    start: Start, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "_USAGE_S", 0.0)
    frontend = await start(key_file=None, files_dir=folder, files_max_bytes=20_000)
    async with sdk_of(frontend, "none") as client:
        file = await client.files.create(file=b"x" * 30_000, purpose="batch")
        with pytest.raises(openai.RateLimitError, match="files_max_bytes"):
            await client.files.create(file=b"x", purpose="batch")
        await client.files.delete(file.id)
        await client.files.create(file=b"x", purpose="batch")


async def test_a_full_disk_is_told_and_leaves_nothing(client: openai.AsyncOpenAI, folder: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(openai.APIStatusError, match="disk for files is full") as error:
            await client.files.create(file=b"x" * (2 << 20), purpose="batch")
        assert error.value.status_code == 503
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((folder / "files").iterdir()) == []


async def test_a_client_that_leaves_or_falls_silent_leaves_nothing(
    keeper: Frontend, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "SILENT_S", 0.2)
    head = (
        b"POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-type: multipart/form-data; boundary=b\r\n"
        b'content-length: 1000\r\n\r\n--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nabc'
    )
    for leaves in (True, False):
        reader, writer = await asyncio.open_connection("127.0.0.1", keeper.http_port)
        writer.write(head)
        await until(lambda: list((folder / "files").iterdir()))
        if leaves:
            writer.close()
        else:
            assert b"504" in await reader.readline()
            writer.close()
        await until(lambda: not list((folder / "files").iterdir()))


async def test_names_of_files_are_no_paths(keeper: Frontend, folder: Path) -> None:
    (folder / "secret.json").write_text("{}")
    async with http_of(keeper) as http:
        for name in (
            "..%2fsecret",
            "../secret",
            "file-" + "0" * 23 + "%2f",
            "file-%00" + "0" * 22,
            "x" * 5000,
        ):
            for path in (f"/v1/files/{name}", f"/v1/files/{name}/content", f"/v1/batches/{name}"):
                assert (await http.get(path)).status_code in (307, 404, 405), path
        form = {"file": ("../../evil.jsonl", b"x")}
        file = (await http.post("/v1/files", data={"purpose": "batch"}, files=form)).json()
    assert file["filename"] == "../../evil.jsonl"
    assert {path.name for path in folder.iterdir()} == {"files", "batches", "secret.json"}


async def test_another_tenant_s_files_are_not_there(start: Start, ring: KeyRing, folder: Path) -> None:
    """Keys of one tenant share files, as they may cancel each other's requests; an admin key sees all."""
    ring.add("colleague")
    ring.add("admin", tenant="ops", admin=True)
    frontend = await start(files_dir=folder)
    names = ("acme", "colleague", "other", "admin")
    clients = {name: sdk_of(frontend, ring.keys[name].text) for name in names}
    async with clients["acme"] as acme, clients["other"] as other:
        file = await acme.files.create(file=b"secret", purpose="batch")
        batch = await acme.batches.create(
            input_file_id=file.id, endpoint="/v1/completions", completion_window="24h"
        )
        for ask in (
            other.files.retrieve(file.id),
            other.files.content(file.id),
            other.files.delete(file.id),
            other.batches.retrieve(batch.id),
            other.batches.cancel(batch.id),
            other.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h"),
        ):
            with pytest.raises(openai.NotFoundError):
                await ask
        assert (await other.files.list()).data == []
        assert (await other.batches.list()).data == []
        for name in ("colleague", "admin"):
            async with clients[name] as client:
                assert (await client.files.content(file.id)).content == b"secret"
    async with http_of(frontend) as http:
        assert (await http.get(f"/v1/files/{file.id}/content")).status_code == 401


async def test_without_a_directory_there_are_no_files(http: httpx.AsyncClient) -> None:
    for method, path in (("GET", "/v1/files"), ("POST", "/v1/batches"), ("GET", "/v1/files/x/content")):
        answer = await http.request(method, path)
        assert answer.status_code == 404
        assert "--files-dir" in answer.json()["error"]["message"]


async def test_a_directory_that_cannot_be_used_is_said_at_the_start(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "none" / "deeper"):
        with pytest.raises(StartupError, match="cannot keep files"):
            await start(key_file=None, files_dir=path)


def test_what_has_expired_or_was_abandoned_is_taken_away(tmp_path: Path) -> None:
    now = 1000.0
    store = FileStore(tmp_path / "files", DiskQuota(tmp_path, 1 << 20), max_file_bytes=100, now=lambda: now)
    stays, goes = (
        store.keep(store.begin(""), filename="f", purpose="batch", expires_s=expires_s)
        for expires_s in (None, 10)
    )
    lost, fresh = store.begin(""), store.begin("")
    long_ago = lost.path.stat().st_mtime - ABANDONED_S - 1
    os.utime(lost.path, (long_ago, long_ago))
    now += 10
    assert store.find(goes.id) is None
    store.sweep()
    assert store.find(stays.id) == stays
    kept = {path.name for path in (tmp_path / "files").iterdir()}
    assert kept == {f"{stays.id}.json", f"{stays.id}.data", fresh.path.name}


def test_a_record_that_is_damaged_is_no_file(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "files", DiskQuota(tmp_path, 1 << 20), max_file_bytes=100)
    file = store.keep(store.begin(""), filename="f", purpose="batch", expires_s=None)
    for text in ("", "{", "[]", json.dumps({"id": 1})):
        (tmp_path / "files" / f"{file.id}.json").write_text(text)
        assert store.find(file.id) is None


def test_a_record_that_cannot_be_read_now_is_not_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a process without file descriptors left, or of another version: the file is its owner's (FB1)."""
    store = FileStore(tmp_path / "files", DiskQuota(tmp_path, 1 << 20), max_file_bytes=100)
    unread, newer = (
        store.keep(store.begin(""), filename="f", purpose="batch", expires_s=None) for _ in range(2)
    )
    about = tmp_path / "files" / f"{newer.id}.json"
    record = about.read_text()
    about.write_text(json.dumps(json.loads(record) | {"added_later": 1}))

    def fail(path: Path) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as without_descriptors:
        without_descriptors.setattr(Path, "read_bytes", fail)
        store.sweep()
    store.sweep()
    assert store.find(unread.id) == unread and store.path_of(unread).is_file()
    about.write_text(record)
    assert store.find(newer.id) == newer and store.path_of(newer).is_file()


async def test_a_form_that_goes_on_behind_its_end_is_refused(start: Start, folder: Path) -> None:
    """It would keep one of the few places for uploads for ever (FB6)."""
    frontend = await start(key_file=None, files_dir=folder, file_max_bytes=1000)
    form = (
        b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nabc\r\n--b--\r\n'
    )

    async def body() -> AsyncIterator[bytes]:
        yield form
        for _ in range(64):
            yield b" " * (64 << 10)

    async with http_of(frontend) as http:
        answer = await http.post(
            "/v1/files", headers={"content-type": "multipart/form-data; boundary=b"}, content=body()
        )
    assert answer.status_code == 413
    assert list((folder / "files").iterdir()) == []


async def test_work_on_files_leaves_the_threads_of_others_alone() -> None:
    """Prompts are tokenized in the loop's own threads (FB8)."""
    release = threading.Event()
    busy = [asyncio.create_task(in_thread(release.wait, 20.0)) for _ in range(64)]
    try:
        async with asyncio.timeout(5):
            assert await asyncio.to_thread(int, "7") == 7
    finally:
        release.set()
    assert all(await asyncio.gather(*busy))


def test_a_batch_that_was_being_made_when_its_process_died_is_taken_away(tmp_path: Path) -> None:
    """Its input would count against the room for files for ever (FB1)."""
    store = BatchStore(tmp_path / "batches")
    unmade, fresh = (tmp_path / "batches" / f".{make_id(BATCH_PREFIX)}" for _ in range(2))
    for folder in (unmade, fresh):
        folder.mkdir()
        (folder / "input.jsonl").write_bytes(b"x" * 100)
    long_ago = unmade.stat().st_mtime - ABANDONED_S - 1
    os.utime(unmade, (long_ago, long_ago))
    store.sweep(0.0)
    assert list((tmp_path / "batches").iterdir()) == [fresh]
