"""No tenant takes more of files and batches than its share (FB7)."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import openai
import pytest

from frontend_svc.api.batches import upload
from frontend_svc.batches import file_store, quota
from frontend_svc.batches.batch import Batch
from frontend_svc.batches.batch_store import BatchStore
from frontend_svc.batches.file_store import FileStore
from frontend_svc.batches.ids import BATCH_PREFIX, make_id
from frontend_svc.batches.quota import DiskQuota
from frontend_svc.batches.usage import UsageMeter
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.errors import ResourceExhaustedError
from tests.frontend_svc.batches.conftest import make_batch, make_lines, until_end
from tests.frontend_svc.guarded import KeyRing, Start, http_of, sdk_of
from tests.frontend_svc.helpers import until
from tests.frontend_svc.scripted_cluster import Cluster


@pytest.fixture(autouse=True)
def always_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "_USAGE_S", 0.0)


def store_of(folder: Path, *, tenant_max_bytes: int = 1 << 20) -> FileStore:
    return FileStore(folder / "files", DiskQuota(folder, 1 << 20, tenant_max_bytes), max_file_bytes=1 << 20)


def put(store: FileStore, tenant: str, size: int) -> str:
    new = store.begin(tenant)
    new.write(bytes(size))
    return store.keep(new, filename="f", purpose="batch", expires_s=None).id


async def test_one_tenant_does_not_fill_the_room_of_all(start: Start, ring: KeyRing, folder: Path) -> None:
    """Before, the other tenant was refused for what this one keeps."""
    frontend = await start(files_dir=folder, files_max_bytes=60_000)
    async with (
        sdk_of(frontend, ring.keys["acme"].text) as acme,
        sdk_of(frontend, ring.keys["other"].text) as other,
    ):
        kept = [await acme.files.create(file=b"x" * 20_000, purpose="user_data") for _ in range(2)]
        with pytest.raises(
            openai.RateLimitError, match=r"files_tenant_max_bytes: 4.* of 30000 bytes .* by acme"
        ):
            await acme.files.create(file=b"x", purpose="user_data")
        await other.files.create(file=b"x" * 10_000, purpose="user_data")
        await acme.files.delete(kept[0].id)
        await acme.files.create(file=b"x", purpose="user_data")


async def test_batches_of_a_tenant_that_has_its_share_wait_alone(
    start: Start, ring: KeyRing, cluster: Cluster, tokenizer: Tokenizer, folder: Path
) -> None:
    cluster.serve(lambda _: tokenizer.fast.encode(" jumps").ids, 1)
    frontend = await start(files_dir=folder, files_max_bytes=200_000)
    async with (
        sdk_of(frontend, ring.keys["acme"].text) as acme,
        sdk_of(frontend, ring.keys["other"].text) as other,
    ):
        source = await acme.files.create(file=("in.jsonl", make_lines(20)), purpose="batch")
        ballast = await acme.files.create(file=b"x" * 100_000, purpose="user_data")
        stuck = await acme.batches.create(
            input_file_id=source.id, endpoint="/v1/completions", completion_window="24h"
        )
        theirs = await make_batch(other, make_lines(20))
        assert (await until_end(other, theirs.id)).request_counts.completed == 20
        assert (await acme.batches.retrieve(stuck.id)).status == "in_progress"
        await acme.files.delete(ballast.id)
        assert (await until_end(acme, stuck.id)).request_counts.completed == 20


@pytest.mark.parametrize(("num_batches", "num_lines"), [(1, 300), (8, 20)], ids=["lines", "batches"])
async def test_what_waits_for_room_keeps_no_place_from_others(
    start: Start,
    ring: KeyRing,
    cluster: Cluster,
    tokenizer: Tokenizer,
    folder: Path,
    num_batches: int,
    num_lines: int,
) -> None:
    """More lines than run at once, and as many batches."""
    cluster.serve(lambda _: tokenizer.fast.encode(" jumps").ids, 1)
    lines = make_lines(num_lines)
    frontend = await start(files_dir=folder, files_max_bytes=200_000)
    async with (
        sdk_of(frontend, ring.keys["acme"].text) as acme,
        sdk_of(frontend, ring.keys["other"].text) as other,
    ):
        await acme.files.create(file=b"x" * (99_900 - len(lines)), purpose="user_data")
        source = await acme.files.create(file=("in.jsonl", lines), purpose="batch")
        for _ in range(num_batches):
            await acme.batches.create(
                input_file_id=source.id, endpoint="/v1/completions", completion_window="24h"
            )
        theirs = await make_batch(other, make_lines(20))
        assert (await until_end(other, theirs.id)).request_counts.completed == 20


async def test_a_batch_without_room_can_be_cancelled(
    start: Start,
    ring: KeyRing,
    cluster: Cluster,
    tokenizer: Tokenizer,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its input takes the room that its results lack, and goes when it has ended."""
    cluster.serve(lambda _: tokenizer.fast.encode(" jumps").ids, 1)
    lines = make_lines(200)
    frontend = await start(files_dir=folder, files_max_bytes=2 * (len(lines) + 5000))
    async with sdk_of(frontend, ring.keys["acme"].text) as acme:
        source = await acme.files.create(file=("in.jsonl", lines), purpose="batch")
        batch = await acme.batches.create(
            input_file_id=source.id, endpoint="/v1/completions", completion_window="24h"
        )
        await until(lambda: f"{batch.id} waits for its disk" in caplog.text)
        await acme.files.delete(source.id)
        await acme.batches.cancel(batch.id)
        ended = await until_end(acme, batch.id)
        counts = ended.request_counts
        assert ended.status == "cancelled"
        assert counts.completed + counts.failed == 200 and counts.failed > 0


async def test_uploads_of_one_tenant_leave_places_to_others(
    start: Start, ring: KeyRing, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "MAX_UPLOADS", 2)
    frontend = await start(files_dir=folder)
    gate = asyncio.Event()

    async def slow() -> object:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nabc'
        await gate.wait()

    form = {"content-type": "multipart/form-data; boundary=b"}
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(http_of(frontend))
        held = asyncio.create_task(
            http.post("/v1/files", headers=form | ring.headers("acme"), content=slow())  # type: ignore[arg-type]
        )
        await until(lambda: list((folder / "files").iterdir()))
        small = {"data": {"purpose": "batch"}, "files": {"file": ("f", b"x")}}
        refused = await http.post("/v1/files", headers=ring.headers("acme"), **small)  # type: ignore[arg-type]
        assert (refused.status_code, "of acme" in refused.json()["error"]["message"]) == (429, True)
        taken = await http.post("/v1/files", headers=ring.headers("other"), **small)  # type: ignore[arg-type]
        assert taken.status_code == 200
        gate.set()
        assert (await held).status_code == 400  # it has no end


def test_counts_have_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_store, "MAX_TENANT_FILES", 2)
    store = store_of(tmp_path)
    for _ in range(2):
        put(store, "acme", 1)
    with pytest.raises(ResourceExhaustedError, match="2 files of acme"):
        store.begin("acme")
    put(store, "other", 1)
    for _ in range(3):
        put(store, "", 1)  # who has no name is no tenant


def test_what_is_kept_is_whose_it_is(tmp_path: Path) -> None:
    """A name more for a batch is no byte more; what nobody can say of counts in the sum alone."""
    store, batches = store_of(tmp_path), BatchStore(tmp_path / "batches")
    file_id, other_id = put(store, "acme", 1000), put(store, "other", 10)
    source = store.find(file_id)
    assert source is not None
    batches.create(batch_of("acme"), store, source)
    (tmp_path / "files" / "file-000000000000000000000000.data").write_bytes(bytes(500))
    for _ in range(2):  # read anew, and as it is remembered
        usage = (meter := UsageMeter(tmp_path)).measure()
        assert usage == meter.measure()
    records = {name: (tmp_path / "files" / f"{name}.json").stat().st_size for name in (file_id, other_id)}
    (state,) = (tmp_path / "batches").glob("*/batch.json")
    acme, other = usage.of_tenants["acme"], usage.of_tenants["other"]
    assert acme.num_bytes == 1000 + records[file_id] + state.stat().st_size
    assert (acme.num_files, acme.num_batches, other.num_files) == (1, 1, 1)
    assert other.num_bytes == 10 + records[other_id]
    assert usage.num_bytes == acme.num_bytes + other.num_bytes + 500


def test_a_folder_that_cannot_be_listed_is_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without descriptors nothing was found, and so there was room for anything."""
    kept = DiskQuota(tmp_path, 100)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "x").write_bytes(bytes(1000))

    def fail(*_: object) -> Iterator[str]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, fail)
    with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        kept.check("")


def batch_of(tenant: str) -> Batch:
    return Batch(make_id(BATCH_PREFIX), tenant, "", "/v1/completions", "file-1", "24h", 0, 1 << 40)


def test_tenants_take_turns_in_batches(tmp_path: Path) -> None:
    """Before, whoever had made eight batches first had all places of the process."""
    store, batches = store_of(tmp_path), BatchStore(tmp_path / "batches")
    source = store.find(put(store, "acme", 10))
    assert source is not None
    made = [batch_of(tenant) for tenant in ["acme"] * 6 + ["other"] * 2 + ["third"]]
    for batch in made:
        batches.create(batch, store, source)
    leases = batches.take(set(), 4, {"third": 1})
    taken = [lease.batch.id for lease in leases]
    assert taken == [made[0].id, made[6].id, made[1].id, made[7].id]
    for lease in leases:
        lease.release()
    skip: set[str] = set(taken)
    assert [lease.batch.id for lease in batches.take(skip, 2, {"acme": 3})] == [made[8].id, made[2].id]
