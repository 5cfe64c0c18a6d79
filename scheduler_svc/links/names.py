"""The names that peers give themselves: they are kept, logged and shown, so they are short and can be read (W1)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from scheduler_svc.core.state.requests.evidence import Process
from signalbox.errors import DuplicateWorkerError, InvalidRequestError
from signalbox.links import versions
from signalbox.v1 import from_frontend_pb2, from_worker_pb2

logger = logging.getLogger(__name__)

MAX_NAME_BYTES = 256


def check_name(field: str, name: str) -> None:
    """Raises InvalidRequestError when `name` is none; `field` is its path from the message on."""
    if not name.strip() or not name.isprintable() or len(name.encode()) > MAX_NAME_BYTES:
        shown = ascii(name if len(name) <= 32 else f"{name[:32]}...")
        raise InvalidRequestError(
            f"{field.rpartition('.')[2]} is {shown}; 1 to {MAX_NAME_BYTES} bytes that can be read are allowed",
            field=field,
        )


def check_worker_names(hello: from_worker_pb2.WorkerHello) -> None:
    """Raises InvalidRequestError when the worker cannot be called what it says."""
    check_name("hello.worker_id", hello.worker_id)
    check_name("hello.worker_instance", hello.worker_instance)
    check_name("hello.address", hello.address)
    check_name("hello.model.model", hello.model.model)
    identity = hello.model.identity
    for field, part in (
        ("weights", identity.weights),
        ("form", identity.form),
        ("number_class", identity.number_class),
    ):
        if part:
            check_name(f"hello.model.identity.{field}", part)


def check_frontend(hello: from_frontend_pb2.FrontendHello) -> None:
    """Raises InvalidRequestError when we and a frontend do not understand each other."""
    try:
        versions.check_versions(hello.protocol, f"frontend {hello.frontend_instance}", "this scheduler")
    except InvalidRequestError as error:
        logger.error("%s", error.message)
        raise


def check_distinct(hello: from_worker_pb2.WorkerHello, holder: str | None, known: Iterable[Process]) -> None:
    """Raises DuplicateWorkerError where a name is another's (H5). holder: instance of the process that lives under the
    worker's id; None: none does. known: processes of all workers."""
    if holder not in (None, hello.worker_instance):
        raise DuplicateWorkerError(
            f"worker {hello.worker_id!r} has a link already, from another process; each needs an id of its own",
            field="worker_id",
        )
    for process in known:
        if process.instance == hello.worker_instance and process.worker_id != hello.worker_id:
            raise DuplicateWorkerError(
                f"that process is worker {process.worker_id!r}; each worker is one of its own",
                field="worker_instance",
            )
