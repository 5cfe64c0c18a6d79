"""What the faces for routers of other projects share: a call becomes a session, or a refusal by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

from google.protobuf.message import Message

from frontend_svc.choices import Choices, open_choices
from frontend_svc.events import Delta
from frontend_svc.gate import Caller
from frontend_svc.generate_input import Asked, OutputForm, StructuredOutput, Trace, read_trace
from frontend_svc.grpc_request import Context
from frontend_svc.intake import Intake
from frontend_svc.metrics import Metrics
from frontend_svc.session import Session
from frontend_svc.sessions import SessionTable
from signalbox import __version__, rpc
from signalbox.errors import (
    CancelledError,
    InternalError,
    InvalidRequestError,
    SignalboxError,
    UnsupportedError,
)

VERSION = f"signalbox {__version__}"
"""What routers are told of who we are."""
NO_DEADLINE_S = 366 * 86_400
"""A deadline so far away is none."""


async def accept(
    intake: Intake, metrics: Metrics, read: Callable[[], tuple[Asked, int]], context: Context
) -> Choices:
    """The choices once the first is placed; a refusal ends the call with its status.

    `read` returns what is asked and for how many choices, or raises the SignalboxError that refuses it.
    """
    choices = None
    try:
        asked, count = read()
        choices = await open_choices(intake, [asked], count)
        await choices.wait_accepted()
        return choices
    except SignalboxError as error:
        if choices is None:
            metrics.on_refused(error)
        await rpc.abort(context, error)
    except Exception as error:
        await rpc.abort(context, InternalError(f"internal error ({type(error).__name__})"))
    except BaseException:
        if choices is not None:
            choices.cancel()
        raise


async def next_deltas(choices: Choices, context: Context) -> list[tuple[int, Delta]]:
    """The next output by choice; nothing when all have ended. An error that ended one ends the call with its status;
    a cancel is no error: the routers have a finish reason for it."""
    news = await choices.next_deltas()
    for _, delta in news:
        error = None if delta.finished is None else delta.finished.error
        if error is not None and not isinstance(error, CancelledError):
            await rpc.abort(context, error)
    return news


def abort(table: SessionTable, request_ids: Iterable[str], caller: Caller) -> None:
    """Cancels the open requests that their clients named so, all choices of each; others' are unknown to `caller`."""
    wanted = set(request_ids)
    for session in table:
        if not caller.may_cancel(session.given.tenant):
            continue
        name, is_later_choice = session.request_id, session.given.choice_index > 0
        if (name.rpartition(".")[0] if is_later_choice else name) in wanted:
            session.cancel()


def refuse_unserved(message: Message, served: Collection[str], path: str = "") -> None:
    """Raises UnsupportedError for a field that is set and not in `served`."""
    for field, _ in message.ListFields():
        if field.name not in served:
            raise UnsupportedError(f"{path}{field.name} is not supported", field=f"{path}{field.name}")


def read_form(message: Any, oneof: str, path: str) -> StructuredOutput | None:
    """The form that the output has to follow, of the `oneof` whose fields are named as ours; None: none."""
    name = message.WhichOneof(oneof)
    if name is None:
        return None
    value, field = getattr(message, name), path + name
    form = OutputForm("json_schema" if name == "json" else name)
    if form is OutputForm.JSON_OBJECT:
        return StructuredOutput(form, field=field) if value else None
    if form is not OutputForm.CHOICE:
        if not value:
            raise InvalidRequestError(f"{field} is empty", field=field)
        return StructuredOutput(form, text=value, field=field)
    choices = tuple(value.choices)
    if not choices or "" in choices:
        raise InvalidRequestError(f"{field} needs strings that are not empty", field=field)
    return StructuredOutput(form, choices=choices, field=field)


def matched_token(session: Session) -> int | None:
    """The stop token that ended a request that stopped without a stop string; None: it was the end of sequence."""
    last = session.output[-1] if session.output else None
    return last if last in session.given.sampling.stop_token_ids else None


def deadline_ms(context: Context) -> int:
    """Of the call, as Unix time; 0: none."""
    remaining_s = context.time_remaining()
    if remaining_s is None or remaining_s > NO_DEADLINE_S:
        return 0
    return int((time.time() + remaining_s) * 1000)


def metadata_of(context: Context) -> dict[str, str]:
    """Headers of the call that are text."""
    return {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}


def trace_of(context: Context) -> Trace:
    """W3C trace context of the call."""
    metadata = metadata_of(context)
    return read_trace(metadata.get("traceparent", ""), metadata.get("tracestate", ""))
