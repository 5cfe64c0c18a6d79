"""POST /v1/files: a form whose file goes to the disk as it comes."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from starlette.requests import ClientDisconnect, Request

from frontend_svc.api.batches.multipart import FormData, FormField, FormFile, MultipartReader, read_boundary
from frontend_svc.batches.file_store import FileStore, StoredFile, Upload
from frontend_svc.batches.threads import in_thread
from signalbox.errors import (
    CancelledError,
    DeadlineExceededError,
    InvalidRequestError,
    RequestTooLargeError,
    limit_reached,
)

PURPOSES = ("batch", "user_data")
"""What a file can be uploaded for."""
SILENT_S = 60.0
"""How long a client may send nothing, in seconds."""
MAX_UPLOADS = 16
"""Files that this process takes at one time."""
RETRY_S = 5.0
MAX_FILENAME_CHARS = 255
MAX_EXPIRE_S = 30 * 86_400
MIN_EXPIRE_S = 3600
FORM_BYTES = 64 << 10
"""What a form may have around its file."""


class Uploads:
    """Takes files from clients, a bounded number at a time."""

    def __init__(self, files: FileStore, *, max_file_bytes: int, expire_s: int) -> None:
        """`expire_s`: how long a file stays whose client does not say, in seconds."""
        self._files, self._max_file_bytes, self._expire_s = files, max_file_bytes, expire_s
        self._num_open = Counter[str]()
        """Uploads that are open, by tenant."""

    async def take(self, request: Request, tenant: str) -> StoredFile:
        """Raises the SignalboxError for which the file is refused; nothing of it stays then."""
        boundary = read_boundary(request.headers.get("content-type", ""))
        announced = request.headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > self._max_file_bytes + FORM_BYTES:
            raise self._too_large()
        self._check_open(tenant)
        self._num_open[tenant] += 1
        form = _Form(self._files, MultipartReader(boundary), tenant)
        try:
            await self._read(request, form)
            return await in_thread(form.keep, self._expire_s)
        finally:
            self._num_open[tenant] -= 1
            self._num_open += Counter()  # forgets tenants without any
            await in_thread(form.close)

    def _check_open(self, tenant: str) -> None:
        """Half of the places are left to others, where there are tenants."""
        num_open = self._num_open.total()
        if num_open >= MAX_UPLOADS:
            raise limit_reached(f"{num_open} files are being uploaded", RETRY_S)
        if tenant and self._num_open[tenant] >= MAX_UPLOADS // 2:
            raise limit_reached(f"{self._num_open[tenant]} files of {tenant} are being uploaded", RETRY_S)

    def _too_large(self) -> RequestTooLargeError:
        return RequestTooLargeError(f"the file is larger than {self._max_file_bytes} bytes", field="file")

    async def _read(self, request: Request, form: _Form) -> None:
        chunks, num_bytes = aiter(request.stream()), 0
        while True:
            try:
                async with asyncio.timeout(SILENT_S):
                    chunk = await anext(chunks)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise DeadlineExceededError(f"nothing of the file came for {SILENT_S:g} s") from None
            except ClientDisconnect:
                raise CancelledError("the client left") from None
            num_bytes += len(chunk)
            if num_bytes > self._max_file_bytes + FORM_BYTES:
                raise self._too_large()
            if chunk:
                await in_thread(form.write, chunk)


@dataclass
class _Form:
    """What the form has said so far. Its methods block."""

    files: FileStore
    reader: MultipartReader
    tenant: str
    fields: dict[str, str] = field(default_factory=dict)
    upload: Upload | None = None
    filename: str = ""
    is_kept: bool = False

    def write(self, chunk: bytes) -> None:
        for part in self.reader.feed(chunk):
            match part:
                case FormData(data):
                    assert self.upload is not None
                    self.upload.write(data)
                case FormFile(name, filename):
                    self._begin(name, filename)
                case FormField(name, value):
                    if name in self.fields:
                        raise InvalidRequestError(f"{name} stands twice", field=name)
                    self.fields[name] = value

    def _begin(self, name: str, filename: str) -> None:
        if name != "file" or self.upload is not None:
            raise InvalidRequestError("the form has to have one file, named file", field=name[:64])
        self.filename = filename[:MAX_FILENAME_CHARS]
        self.upload = self.files.begin(self.tenant)

    def keep(self, expire_s: int) -> StoredFile:
        if not self.reader.is_complete:
            raise InvalidRequestError("the body is no form: its last boundary is missing")
        purpose, expires_s = read_fields(self.fields)
        if self.upload is None:
            raise InvalidRequestError("the form has no file", field="file")
        file = self.files.keep(
            self.upload,
            filename=self.filename,
            purpose=purpose,
            expires_s=expire_s if expires_s is None else expires_s,
        )
        self.is_kept = True
        return file

    def close(self) -> None:
        if self.upload is not None and not self.is_kept:
            self.upload.abort()


def read_fields(fields: dict[str, str]) -> tuple[str, int | None]:
    """(purpose, seconds that the file stays or None). Raises InvalidRequestError."""
    known = {"purpose", "expires_after[anchor]", "expires_after[seconds]"}
    for name in fields:
        if name not in known:
            raise InvalidRequestError(f"{name[:64]} is not a field of this request", field=name[:64])
    purpose = fields.get("purpose", "")
    if purpose not in PURPOSES:
        raise InvalidRequestError(f"purpose must be one of {', '.join(PURPOSES)}", field="purpose")
    anchor, seconds = fields.get("expires_after[anchor]"), fields.get("expires_after[seconds]")
    if anchor is None and seconds is None:
        return purpose, None
    if anchor != "created_at" or seconds is None or not seconds.isdecimal():
        raise InvalidRequestError(
            "expires_after needs the anchor created_at and whole seconds", field="expires_after"
        )
    return purpose, check_expiry(int(seconds), "expires_after")


def check_expiry(seconds: int, name: str) -> int:
    """`seconds`. Raises InvalidRequestError, which names the field."""
    if not MIN_EXPIRE_S <= seconds <= MAX_EXPIRE_S:
        raise InvalidRequestError(
            f"{name}: seconds must be from {MIN_EXPIRE_S} to {MAX_EXPIRE_S}", field=f"{name}.seconds"
        )
    return seconds
