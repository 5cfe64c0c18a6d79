"""The endpoints of files and batches. Any process that shares the directory answers for all of them."""

from __future__ import annotations

import asyncio
import re
import time
from itertools import islice
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from frontend_svc.api.batches.body import BATCH_PATHS, BatchBody
from frontend_svc.api.batches.in_process import Endpoint, InProcessCalls
from frontend_svc.api.batches.upload import Uploads
from frontend_svc.api.http.call import read_body
from frontend_svc.api.http.errors import JSON
from frontend_svc.api.openapi.reads import reads
from frontend_svc.batches.batch import ENDED, OPEN, Batch, BatchStatus
from frontend_svc.batches.batch_run import BatchLimits
from frontend_svc.batches.batch_store import MAX_TENANT_BATCHES, BatchStore
from frontend_svc.batches.disk import disk_errors
from frontend_svc.batches.file_store import FileStore, StoredFile
from frontend_svc.batches.ids import BATCH_PREFIX, is_batch_id, is_file_id, make_id
from frontend_svc.batches.places import Places
from frontend_svc.batches.quota import DiskQuota
from frontend_svc.batches.runner import BatchRunner
from frontend_svc.services import Services
from signalbox.errors import InvalidRequestError, RequestNotFoundError, StartupError

DEFAULT_PAGE, MAX_BATCH_PAGE, MAX_FILE_PAGE = 20, 100, 10_000
LINE_BYTES = 4 << 10
"""What a line of a batch may have around its body."""
_NUMBER = re.compile(r"[0-9]{1,5}")


class BatchesApi:
    """Files and batches in one directory, and the worker through the batches."""

    def __init__(self, services: Services, endpoints: dict[str, Endpoint]) -> None:
        """`endpoints` by path: those that lines of batches may ask. Raises StartupError when the directory cannot be
        used."""
        settings = self._settings = services.settings
        assert settings.files_dir is not None
        self._services = services
        quota = self._quota = DiskQuota(
            settings.files_dir, settings.files_max_bytes, settings.files_tenant_bytes
        )
        try:
            settings.files_dir.mkdir(mode=0o700, exist_ok=True)
            self._files = FileStore(
                settings.files_dir / "files", quota, max_file_bytes=settings.file_max_bytes
            )
            self._batches = BatchStore(settings.files_dir / "batches")
        except OSError as error:
            raise StartupError(f"cannot keep files in {settings.files_dir}: {error.strerror}") from None
        self._uploads = Uploads(
            self._files, max_file_bytes=settings.file_max_bytes, expire_s=settings.files_expire_s
        )
        own = {path: endpoints[path] for path in BATCH_PATHS}
        self.runner = BatchRunner(
            self._batches,
            self._files,
            quota,
            InProcessCalls(own, services.access, settings.batch_priority).execute,
            BatchLimits(
                settings.batch_max_lines, settings.max_request_bytes + LINE_BYTES, settings.files_expire_s
            ),
            places=Places(settings.batch_concurrency, settings.batch_concurrency_beside, self._is_busy),
        )
        self.routes = [
            Route("/v1/files", self.upload, methods=["POST"]),
            Route("/v1/files", self.list_files, methods=["GET"]),
            Route("/v1/files/{file_id}", self.get_file, methods=["GET"]),
            Route("/v1/files/{file_id}", self.delete_file, methods=["DELETE"]),
            Route("/v1/files/{file_id}/content", self.get_content, methods=["GET"]),
            Route("/v1/batches", self.create, methods=["POST"]),
            Route("/v1/batches", self.list_batches, methods=["GET"]),
            Route("/v1/batches/{batch_id}", self.get_batch, methods=["GET"]),
            Route("/v1/batches/{batch_id}/cancel", self.cancel, methods=["POST"]),
        ]

    def _is_busy(self) -> bool:
        """Requests are open that are no lines of batches."""
        return any(
            session.request.priority < self._settings.batch_priority for session in self._services.table
        )

    # -- files --

    async def upload(self, request: Request) -> Response:
        """Serves POST /v1/files."""
        with self._services.metrics.counting_refusals():
            file = await self._uploads.take(request, self._services.access.caller.tenant)
        return _json(file.as_json())

    async def list_files(self, request: Request) -> Response:
        """Serves GET /v1/files."""
        query = request.query_params
        limit = _read_limit(request, MAX_FILE_PAGE, MAX_FILE_PAGE)
        order, purpose, after = query.get("order", "desc"), query.get("purpose"), query.get("after", "")
        if order not in ("asc", "desc"):
            raise InvalidRequestError("order must be asc or desc", field="order")
        _check_after(after, is_file_id(after))
        caller = self._services.access.caller

        def page() -> list[StoredFile]:
            files = self._files.files(after, newest_first=order == "desc")
            seen = (each for each in files if caller.may_see(each.tenant))
            return list(islice((each for each in seen if purpose in (None, each.purpose)), limit + 1))

        return _page([file.as_json() for file in await asyncio.to_thread(page)], limit)

    async def get_file(self, request: Request) -> Response:
        """Serves GET /v1/files/{file_id}."""
        return _json((await self._find_file(request.path_params["file_id"])).as_json())

    async def delete_file(self, request: Request) -> Response:
        """Serves DELETE /v1/files/{file_id}."""
        file = await self._find_file(request.path_params["file_id"])
        await asyncio.to_thread(self._files.delete, file.id)
        return _json({"id": file.id, "object": "file", "deleted": True})

    async def get_content(self, request: Request) -> Response:
        """Serves GET /v1/files/{file_id}/content."""
        file = await self._find_file(request.path_params["file_id"])
        if not await asyncio.to_thread(self._files.can_be_read, file):
            raise _not_found("file", file.id)
        return FileResponse(self._files.path_of(file), media_type="application/octet-stream")

    async def _find_file(self, file_id: str) -> StoredFile:
        """Raises RequestNotFoundError, also for another tenant's: whether it is there is nobody else's business."""
        file = await asyncio.to_thread(self._files.find, file_id)
        if file is None or not self._services.access.caller.may_see(file.tenant):
            raise _not_found("file", file_id)
        return file

    # -- batches --

    @reads(
        BatchBody,
        {"input_file_id": "file-1", "endpoint": "/v1/chat/completions", "completion_window": "24h"},
        runs=False,
    )
    async def create(self, request: Request) -> Response:
        """Serves POST /v1/batches."""
        with self._services.metrics.counting_refusals():
            body = await read_body(self._services, request, BatchBody)
            window_s, results_s = body.check()
            file = await self._find_file(body.input_file_id)
            if file.purpose != "batch":
                message = f"the file {file.id} has the purpose {file.purpose}, not batch"
                raise InvalidRequestError(message, field="input_file_id")
            caller, now = self._services.access.caller, int(time.time())
            batch = Batch(
                id=make_id(BATCH_PREFIX),
                tenant=caller.tenant,
                key_id=caller.key_id,
                endpoint=body.endpoint,
                input_file_id=file.id,
                completion_window=body.completion_window,
                created_at=now,
                expires_at=now + window_s,
                metadata=body.metadata,
                output_expires_s=results_s,
            )
            await asyncio.to_thread(self._create, batch, file)
        self.runner.look(batch.id)
        return _json(batch.as_json())

    def _create(self, batch: Batch, file: StoredFile) -> None:
        with disk_errors():
            self._quota.check_batches(batch.tenant, MAX_TENANT_BATCHES)
        self._batches.create(batch, self._files, file)

    async def list_batches(self, request: Request) -> Response:
        """Serves GET /v1/batches."""
        limit = _read_limit(request, DEFAULT_PAGE, MAX_BATCH_PAGE)
        after = request.query_params.get("after", "")
        _check_after(after, is_batch_id(after))
        caller = self._services.access.caller

        def page() -> list[Batch]:
            seen = (each for each in self._batches.batches(after) if caller.may_see(each.tenant))
            return list(islice(seen, limit + 1))

        return _page([batch.as_json() for batch in await asyncio.to_thread(page)], limit)

    async def get_batch(self, request: Request) -> Response:
        """Serves GET /v1/batches/{batch_id}."""
        return _json((await self._find_batch(request.path_params["batch_id"])).as_json())

    async def cancel(self, request: Request) -> Response:
        """Serves POST /v1/batches/{batch_id}/cancel. Again for one that is being cancelled, or was, does nothing."""
        batch = await self._find_batch(request.path_params["batch_id"])
        if batch.status in OPEN:
            await asyncio.to_thread(self._batches.cancel, batch.id)
            self.runner.look(batch.id)
        elif batch.status not in (BatchStatus.CANCELLING, BatchStatus.CANCELLED):
            said = "has ended" if batch.status in ENDED else "is finished but for its files"
            raise InvalidRequestError(f"the batch {said}: it is {batch.status}", field="batch_id")
        return _json((await self._find_batch(batch.id)).as_json())

    async def _find_batch(self, batch_id: str) -> Batch:
        """Raises RequestNotFoundError, also for another tenant's."""
        batch = await asyncio.to_thread(self._batches.find, batch_id)
        if batch is None or not self._services.access.caller.may_see(batch.tenant):
            raise _not_found("batch", batch_id)
        return batch


class NoFiles:
    """Says that this server keeps no files."""

    def __init__(self) -> None:
        paths = ("/v1/files", "/v1/files/{rest:path}", "/v1/batches", "/v1/batches/{rest:path}")
        methods = ["GET", "POST", "DELETE"]
        self.routes = [Route(path, self.refuse, methods=methods, include_in_schema=False) for path in paths]

    async def refuse(self, request: Request) -> Response:
        """Serves all of them."""
        raise RequestNotFoundError("this server keeps no files: it was started without --files-dir")


def _not_found(what: str, name: str) -> RequestNotFoundError:
    return RequestNotFoundError(f"there is no {what} {name[:64]!r}", field=f"{what}_id")


def _json(value: dict[str, Any]) -> Response:
    return Response(orjson.dumps(value), media_type=JSON)


def _page(items: list[dict[str, Any]], limit: int) -> Response:
    """`items` may have one more than the page."""
    shown = items[:limit]
    return _json(
        {
            "object": "list",
            "data": shown,
            "first_id": shown[0]["id"] if shown else None,
            "last_id": shown[-1]["id"] if shown else None,
            "has_more": len(items) > limit,
        }
    )


def _read_limit(request: Request, default: int, most: int) -> int:
    text = request.query_params.get("limit")
    if text is None:
        return default
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= most:
        raise InvalidRequestError(f"limit must be from 1 to {most}", field="limit")
    return int(text)


def _check_after(after: str, is_id: bool) -> None:
    if after and not is_id:
        raise InvalidRequestError("after must be an id of the list", field="after")
